"""Parameters and optimiser state as the training loop sees them: a copy on each device, or one whole of all parts."""

import itertools

import numpy as np

from ..devices import DeviceArray, put
from ..language.plan import all_of
from ..language.split import in_shapes
from ..layers import Draws
from ..networks import loss_and_grads
from ..plans.whole import whole_state


def warm_up(store, size, labels):
    """Let a GPU compute gradients of ``size`` black images, so that no timed step includes compiling kernels."""
    if store.device.kind != "gpu":
        return
    device, network = store.device, store.plan.network
    X = np.zeros((size, *network.input_shape), store.dtype)
    y = np.zeros((size, *labels.shape[1:]), labels.dtype)
    how = {"draws": Draws(0), "loss": store.loss}
    device.run(loss_and_grads, put(X, device), put(y, device), Copy(store).params, network, **how).result()


def has_copies(plan):
    """Whether each device has its own micro-batches and, between steps, all parameters in the network's order.

    This is data parallelism. A split stage is stored unit by unit, even if one device has all its units.
    """
    if any(stage.split for stage in plan.stages):
        return False
    everything = [(s, all_of(stage), all_of(stage)) for s, stage in enumerate(plan.stages)]
    first = {(c.device, c.micro_batch) for c in itertools.chain(*plan.steps) if c[0] == "F" and c.stage == 0}
    own = {(i * plan.k // plan.micro_batches, i) for i in range(plan.micro_batches)}
    return all(sorted(parts) == everything for parts in plan.layout) and first == own


class Copy:
    """A device's copy of all parameters and of the optimiser's state, as device arrays."""

    def __init__(self, store):
        self.device = store.device
        shapes = [shape for own in store.shapes for shape in own]
        self.params = self._on_device(in_shapes(store.flat, shapes))
        self.flat_optimizer_state = self._on_device(store.flat_state)
        self.statistics = self._on_device([array for s in sorted(store.running) for array in store.running[s]])

    def _on_device(self, arrays):
        return [DeviceArray(array, self.device) for array in arrays]


class Whole:
    """All parameters and optimiser state, gathered on the host from the devices' parts, and used like a single `Copy`.

    On a `Cluster` every process has a `Whole`, and all processes must ask for its values at the same time.
    """

    def __init__(self, execution):
        self.execution = execution

    @property
    def params(self):
        """The parameters, in the form of `init_params`."""
        return self.execution.params()

    @property
    def statistics(self):
        """Batch norm's running statistics; each layer's come from the first device that computes it."""
        return self.execution.statistics()[0]

    @property
    def flat_optimizer_state(self):
        """For each of the optimiser's states, an array with one number per parameter, in the order of parameters."""
        return whole_state(self.execution)
