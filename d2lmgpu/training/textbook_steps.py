"""Training without a split: the steps of parallel/step.py, and the run's state on the devices."""

import numpy as np

from ..cluster import gather
from ..collectives import find_algorithm
from ..devices import Batch, put, to_host
from ..networks import init_statistics
from ..networks.optimizers import init_optimizer
from ..parallel import get_params
from ..parallel.computation import computation_for
from ..parallel.step import Replica, Step, split_batch
from .runner import StepsAhead
from .splits import check_memory


class TextbookSteps(StepsAhead):
    """The `Runner` of steps as the textbook has them. ``group``: a `Cluster`.

    ``replicas``: a `Replica` on each device of this process.

    Raises DeviceMemoryError if a device's memory limit is too low.
    """

    peak_memory = None

    def __init__(self, X, y, params, group, network, settings):
        super().__init__(X, y, params[0].dtype, group, network, settings)
        self.errors = []
        self.algorithm = find_algorithm(group.across(settings.algorithm))
        if self.limited:
            check_memory(self.plan, group, settings, min(settings.batch_size, len(X)), self.y, params[0].dtype)
        copies = [get_params(params, device) for device in self.devices]
        optimizers = init_optimizer(settings.optimizer, copies, settings.weight_decay)
        self.replicas = [self._replica(*own) for own in zip(self.devices, copies, optimizers, strict=True)]

    def _replica(self, device, params, optimizer):
        settings, statistics = self.settings, [put(array, device) for array in init_statistics(self.network)]
        computed = self.network, self.loss, statistics, settings.batch_statistics == "aggregated"
        computation = computation_for(self.network, settings.precision, settings.sums)(device, *computed)
        return Replica(device, params, optimizer, computation)

    def submit(self, n, lr, draws):
        options = {"draws": draws, "tell": self.stop.wanted, "batch": Batch(self.errors)}
        return Step(self.replicas, *self._shards(), lr, n, self.group, self.algorithm, self.settings.flat, **options)

    def _shards(self):
        """The next minibatch's shards. With limited memory there is no room for the queue's two minibatches."""
        if not self.limited:
            return self.queue.next()
        X, y = self.queue.next_whole()
        return split_batch(X, y, self.group, self.settings.loads, self.settings.sums)

    def finish(self, step):
        loss, right, told = step.finish()
        return loss, int(right), told

    def copies(self):
        return [(replica.params, replica.computation.statistics) for replica in self.replicas]

    def statistics(self):
        arrays = [list(map(to_host, replica.computation.statistics)) for replica in self.replicas]
        if not arrays[0]:
            return [[] for _ in self.group]
        dtype, ends = arrays[0][0].dtype, np.cumsum([len(array) for array in arrays[0]])[:-1]
        rows = gather(self.group, [np.concatenate(own) for own in arrays])
        return [np.split(row.astype(dtype), ends) for row in rows]

    def set_statistics(self, statistics):
        for replica in self.replicas:
            _set(replica.computation.statistics, statistics)

    def state(self):
        """The first device's state, with the statistics of all: only these differ between devices."""
        first = self.replicas[0]
        arrays = {"params": first.params, "kept": first.optimizer.flat_state}
        arrays = {name: list(map(to_host, own)) for name, own in arrays.items()}
        arrays |= {f"statistics of {i}": own for i, own in enumerate(self.statistics())}
        return arrays | {"scaling": first.computation.arrays()}, first.optimizer.steps

    def set_state(self, arrays, steps):
        for i, replica in enumerate(self.replicas, self.group.first):
            _set(replica.params, arrays["params"])
            _set(replica.optimizer.flat_state, arrays.get("kept", []))
            _set(replica.computation.statistics, arrays.get(f"statistics of {i}", arrays.get("statistics of 0", [])))
            replica.computation.set_arrays(arrays.get("scaling"))
            replica.optimizer.steps = steps


def _set(arrays, values):
    for array, value in zip(arrays, values, strict=True):
        array[...] = put(value, array.device)
