"""Exchanging gradients while others are still being computed, as the textbook finds "highly desirable".

Backward goes through the layers from the last to the first, so that the last
layers' gradients are final long before the first ones'. They are exchanged in
*buckets* of neighbouring parameters (Li et al. 2020, PyTorch DDP): big enough
that a message is worth its cost, small enough that the first is ready early.

    device    forward | backward: bucket 0 | bucket 1 ......... | (waits) | update
    channel                                | allreduce 0 ...... | allreduce 1 |

Each device has a second queue for it, its channel, on the same memory.
"""

from ..collectives import allreduce
from ..devices import DeviceArray, Task, one_buffer

BUCKET = 2**18
"""Bytes of gradients that a bucket has at least, but for the last, which has the rest."""


class Exchange:
    """The exchange of one step's gradients over ``devices``; ``flat``: a bucket is one message."""

    def __init__(self, device_grads, devices, algorithm, flat):
        self.device_grads, self.devices, self.algorithm, self.flat = device_grads, devices, algorithm, flat
        self.buckets = split_in_buckets(device_grads[0])
        self.events = [[Task(places=(device,)) for _ in self.buckets] for device in devices]

    def ready(self, i):
        """What device ``i`` is to call with an index when its gradients from that one on are computed."""
        device, left = self.devices[i], list(zip(self.buckets, self.events[i], strict=True))

        def ready(first):
            while left and left[0][0].start >= first:
                left.pop(0)[1].set_result(device.mark())

        return ready

    def add(self, batch, tasks):
        """Add the exchange of all buckets to a batch, each to begin when it is ready on all devices.

        ``tasks`` compute the gradients. If one fails, nobody waits for what will
        never be ready. What is submitted to the devices next comes after the exchange.
        """
        for task, events in zip(tasks, self.events, strict=True):
            task.add_done_callback(lambda task, events=events: _let_go(task, events))
        channels = [device.channel for device in self.devices]
        for number, bucket in enumerate(self.buckets):
            for channel, events in zip(channels, self.events, strict=True):
                batch.wait(channel, events[number])
            parts = [
                [DeviceArray(grad.raw, channel) for grad in grads[bucket]]
                for channel, grads in zip(channels, self.device_grads, strict=True)
            ]
            if self.flat:
                parts = [[one_buffer(part)] for part in parts]
            for arrays in zip(*parts, strict=True):
                allreduce(arrays, self.algorithm, batch)
        for device, channel in zip(self.devices, channels, strict=True):
            batch.wait(device, batch.record(channel))


def _let_go(task, events):
    if task.error is not None:
        for event in events:
            if not event.done():
                event.set_exception(task.error)


def split_in_buckets(params):
    """Slices of the list of parameters, from its end to its start."""
    slices, stop, nbytes = [], len(params), 0
    for i in reversed(range(len(params))):
        nbytes += params[i].nbytes
        if nbytes >= BUCKET or i == 0:
            slices.append(slice(i, stop))
            stop, nbytes = i, 0
    return slices
