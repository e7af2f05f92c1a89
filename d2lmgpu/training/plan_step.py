"""Training with a plan: its steps for the loop, and the loop's access to parameters and state."""

from ..collectives.nccl import check_cards
from ..networks.optimizers import make_optimizer
from ..parallel.shards import shard_bounds
from ..plans import Execution
from ..plans.execution.step import Minibatch
from ..plans.proof.sizes import examples_of
from .runner import StepsAhead
from .splits import WITHOUT_SCHEDULE, check_memory


class PlanStep(StepsAhead):
    """The `Runner` of the plan for ``settings.split``; without a split, the plan "data". ``devices``: a `Cluster`.

    Raises ValueError for settings for which there is no plan, DeviceMemoryError if a device's memory limit is too low.
    """

    def __init__(self, X, y, params, devices, network, settings):
        super().__init__(X, y, params[0].dtype, devices, network, settings)
        self.network = self.plan.network  # in mixed precision, it rounds numbers
        batch_size = min(settings.batch_size, len(X))
        about = settings, batch_size, self.y, params[0].dtype, self._examples(batch_size)
        peaks = check_memory(self.plan, devices, *about)
        self.peak_memory = peaks if settings.split else None
        options = {
            "mixed": settings.precision == "mixed",
            "overlap": settings.overlap,
            "library": self._library(devices),
        }
        self.execution = Execution(self.plan, params, devices, make_optimizer(settings), self.loss, **options)

    def _library(self, devices):
        if self.settings.algorithm not in WITHOUT_SCHEDULE:
            return None
        if devices.size == 1:
            check_cards(devices.mine)
        return devices.across(self.settings.algorithm)

    def submit(self, n, lr, draws):
        """Submit a step. If each device has its own part of the examples, it gets its shard from the queue."""
        sizes = self._examples(n)
        if not self.is_data or self.limited:  # with limited memory there is no room for the queue's two minibatches
            return self.execution.submit(*self.queue.next_whole(), lr, draws, sizes, self.stop.wanted)
        placed, each = {}, self.settings.micro_batches
        for i, X, y in zip(self.execution.store, *self.queue.next(), strict=True):
            placed[i], first = Minibatch(sizes, draws), i * each
            for m in range(each):
                part = slice(*examples_of(sizes[first : first + each], each, m))
                placed[i].X[first + m], placed[i].y[first + m] = X.raw[part], y.raw[part]
        return self.execution.submit_placed(placed, lr, self.stop.wanted)

    def finish(self, step):
        return self.execution.finish(step), self.execution.correct, any(self.execution.told)

    def copies(self):
        if self.is_data:
            return [store.copy() for store in self.execution.stores]
        return [(self.execution.params(), self.execution.statistics()[0])]

    def statistics(self):
        return self.execution.statistics()

    def set_statistics(self, statistics):
        self.execution.set_statistics([statistics] * len(self.devices))

    def state(self):
        arrays = {"params": self.execution.params(), "kept": self.execution.gather_state()}
        arrays |= {f"statistics of {i}": own for i, own in enumerate(self.statistics())}
        first = self.execution.stores[0]  # the loss scale is the same on all devices
        return arrays | {"scaling": first.precision.arrays()}, first.steps

    def set_state(self, arrays, steps):
        execution, others = self.execution, arrays.get("statistics of 0", [])
        execution.set_params(arrays["params"])
        execution.scatter_state(arrays.get("kept", []))
        numbers = self.group.part(range(len(self.group)))
        execution.set_statistics([arrays.get(f"statistics of {i}", others) for i in numbers])
        for store in execution.stores:
            store.steps = steps
            store.precision.set_arrays(arrays.get("scaling"))

    def _examples(self, n):
        """How many of n examples each micro-batch has: equal parts of a device's share; None means equal parts of n."""
        if not self.is_data:
            return None
        shares = shard_bounds(n, self.plan.k, self.settings.loads)
        parts = (shard_bounds(stop - start, self.settings.micro_batches) for start, stop in shares)
        return tuple(stop - start for part in parts for start, stop in part)
