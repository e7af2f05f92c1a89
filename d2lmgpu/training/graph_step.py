"""Training with a plan whose steps are CUDA graphs: the data set is in the devices' memory, and a step is one call.

The host program need not do anything between steps, so it launches several at once if nothing is read in between.
"""

import collections

import numpy as np

from ..data import epoch_size
from ..devices import put
from ..language.sizes import examples_in_each
from ..optimizers import make_optimizer
from ..plans.graphs import GraphExecution
from ..spans import span
from .plan_step import PlanStep
from .resume import START
from .runner import AHEAD

TOGETHER = 8
"""The number of steps in the longer graph, used when nothing is read in between: one call starts them all."""


class GraphStep(PlanStep):
    """Like `PlanStep`, for data parallelism on GPUs of this process. ``X`` (M, C, H, W) and ``y`` (M,) are uint8.

    The constructor records the steps, which changes nothing on the devices, even if recording fails.

    Raises RuntimeError for a network with a layer that has no kernels, and whatever CuPy raises if recording fails.
    """

    in_graphs = True

    def _execution(self, params, devices, loss):
        settings = self.settings
        return GraphExecution(
            self.plan, params, devices, make_optimizer(settings), settings.precision, settings.overlap
        )

    def _get_ready(self, X, devices, batch_size):
        self.full, rest = divmod(epoch_size(len(X), batch_size, self.settings.drop_last), batch_size)
        self.counts = [batch_size] * self.full + [rest] * (rest > 0)
        loads = devices.part(self.settings.loads or [1] * len(devices))
        self.busy = [device for device, load in zip(self.devices, loads, strict=True) if load]
        data = [(put(np.asarray(X, np.uint8), device), put(self.y.astype(np.uint8), device)) for device in self.devices]
        self.execution.take_data([(X.raw, y.raw) for X, y in data], [self._sizes(n) for n in self.counts])
        self._launched = collections.deque()
        self._let_first_wait()
        self.graphs = {n: self.execution.record(self._sizes(n)) for n in sorted(set(self.counts))}
        longer = self.full >= TOGETHER
        self.longer_graph = self.execution.record(self._sizes(batch_size), TOGETHER) if longer else None

    def _sizes(self, n):
        """How many of n examples each micro-batch has."""
        return tuple(examples_in_each(self._examples(n) or n, self.plan.micro_batches))

    def so_far(self):
        """As in `Runner`: an epoch's results are known only when it is over."""
        return None, None

    def start_epoch(self, order, rates, position=START):
        """As in `Runner`. The losses may come from another plan or other devices."""
        done, losses, correct = position.steps, position.losses, position.correct or 0
        first, *others = sorted(self.execution.holder)
        if len(losses) != 1 + len(others):
            losses = [sum(losses), *[0.0] * len(others)]
        totals = {first: (losses[0], correct)} | {m: (loss, 0) for m, loss in zip(others, losses[1:], strict=True)}
        rates = np.float32(np.broadcast_to(rates, self.steps) / np.float32(self.counts))
        self.execution.begin_epoch(order, rates, done, totals)
        self._let_first_wait()
        self.number = done

    def launch(self, most):
        """As in `Runner`: launch `TOGETHER` steps at once, or one if ``most`` is less.

        The host program waits only if it is already `AHEAD` launches ahead.
        """
        if self.longer_graph is None or min(most, self.full - self.number) < TOGETHER:
            return self._submit(self.graphs[self.counts[self.number]], 1)
        return self._submit(self.longer_graph, TOGETHER)

    def pause(self):
        """As in `Runner`; the losses are those of each micro-batch."""
        self.close()
        totals = self.execution.totals()
        return [loss for loss, _ in totals], int(sum(correct for _, correct in totals))

    def close(self):
        """Make later work on all devices wait for the steps so far; call it before you drop this object.

        The graph uses all devices' memory but runs in the first device's stream, so the other devices might otherwise
        reuse that memory for new arrays while the graph still needs it.
        """
        if self._launched:
            for device in self.devices[1:]:
                device.wait(self._launched[-1])
            self._launched.clear()

    def _scaling(self):
        """As in `PlanStep`."""
        store = self.execution.stores[0]
        return [store.device.submit(array.get).result() for array in store.scaling()]

    def _set_scaling(self, arrays):
        """As in `PlanStep`."""
        for store in self.execution.stores:
            for array, value in zip(store.scaling(), arrays, strict=True):
                store.device.submit(array.set, value).result()
            store.device.submit(store.device.finish).result()

    def _submit(self, graph, steps):
        sizes = self.counts[self.number : self.number + steps]
        self.number += steps
        self.execution.begun += steps
        self._launched.append(self.devices[0].submit(self._launch, graph))
        if len(self._launched) > AHEAD:
            self._launched.popleft().result().synchronize()
        return sizes

    def _launch(self, graph):
        first = self.devices[0]
        with span("step", self.busy):
            graph.launch(first.stream)
        return first.mark()

    def _let_first_wait(self):
        """Make the graph wait for all the work that the devices have been given so far."""
        for device in self.devices[1:]:
            self.devices[0].wait(device.record())
