"""Exchanging gradients while others are still being computed, as the textbook finds "highly desirable".

Backward goes through the layers from the last to the first, so that the last
layers' gradients are final long before the first ones'. They are exchanged in
*buckets* of neighbouring parameters (Li et al. 2020, PyTorch DDP): big enough
that a message is worth its cost, small enough that the first is ready early.

    device    forward | backward: bucket 0 | bucket 1 ......... | (waits) | update
    comm stream                            | allreduce 0 ...... | allreduce 1 |

Each device has a second queue for the exchange, its comm stream, on the same memory.
"""

from ..collectives import allreduce
from ..devices import DeviceArray, Task, one_buffer

BUCKET = 2**18
"""Bytes of gradients that a bucket has at least, but for the last, which has the rest."""


class Overlap:
    """What one step does in `train_shards`: ``compute``, with an exchange that begins while it is under way.

    ``flat``: a bucket is one message.
    """

    def __init__(self, replicas, compute, flat):
        self.devices, self.flat, self._compute = [replica.device for replica in replicas], flat, compute
        self.buckets = split_in_buckets(replicas[0].grads)
        self.events = [[Task(places=(device,)) for _ in self.buckets] for device in self.devices]

    def compute(self, batch, X_shards, y_shards, replicas):
        """Add the computation of gradients to a batch; returns its tasks.

        If one fails, no device waits for gradients that will never be ready.
        """
        hooked = [replica.with_hook(self._hook(i)) for i, replica in enumerate(replicas)]
        tasks = self._compute(batch, X_shards, y_shards, hooked)
        for task, events in zip(tasks, self.events, strict=True):
            task.add_done_callback(lambda task, events=events: _let_go(task, events))
        return tasks

    def _hook(self, i):
        """The function for device ``i`` to call with an index when its gradients from that one on are computed."""
        device, left = self.devices[i], list(zip(self.buckets, self.events[i], strict=True))

        def hook(first):
            while left and left[0][0].start >= first:
                left.pop(0)[1].finish(device.mark())

        return hook

    def exchange(self, batch, replicas, algorithm):
        """Add the exchange of all buckets to a batch, each to begin when it is ready on all devices.

        What is submitted to the devices next comes after the exchange.
        """
        streams = [device.comm_stream for device in self.devices]
        for number, bucket in enumerate(self.buckets):
            for stream, events in zip(streams, self.events, strict=True):
                batch.wait(stream, events[number])
            parts = [
                [DeviceArray(grad.raw, stream) for grad in replica.grads[bucket]]
                for stream, replica in zip(streams, replicas, strict=True)
            ]
            if self.flat:
                parts = [[one_buffer(part)] for part in parts]
            for arrays in zip(*parts, strict=True):
                allreduce(arrays, algorithm, batch)
        for device, stream in zip(self.devices, streams, strict=True):
            batch.wait(device, batch.record(stream))


def _let_go(task, events):
    if task.error is not None:
        for event in events:
            if not event.done():
                event.finish(None, task.error)


def split_in_buckets(params):
    """Slices of the list of parameters, from its end to its start."""
    slices, stop, nbytes = [], len(params), 0
    for i in reversed(range(len(params))):
        nbytes += params[i].nbytes
        if nbytes >= BUCKET or i == 0:
            slices.append(slice(i, stop))
            stop, nbytes = i, 0
    return slices
