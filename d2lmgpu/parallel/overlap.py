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

    def __init__(self, device_params, devices, algorithm, flat):
        self.devices, self.algorithm, self.flat = devices, algorithm, flat
        self.buckets = split_in_buckets(device_params[0])
        self.events = [[Task() for _ in self.buckets] for _ in devices]
        self.device_grads = [None] * len(devices)

    def expect(self, i, grads):
        """Device ``i`` will compute ``grads``; returns what it is to call when those from number ``first`` on are."""
        self.device_grads[i] = grads
        device, left = self.devices[i], list(zip(self.buckets, self.events[i], strict=True))

        def ready(first):
            while left and left[0][0].start >= first:
                left.pop(0)[1].set_result(device.mark())

        return ready

    def start(self):
        """Submit the exchange of all buckets; each waits until it is ready on all devices."""
        channels = [device.channel for device in self.devices]
        for number, bucket in enumerate(self.buckets):
            for channel, events in zip(channels, self.events, strict=True):
                channel.wait(events[number])
            parts = [
                [DeviceArray(grad.raw, channel) for grad in grads[bucket]]
                for channel, grads in zip(channels, self.device_grads, strict=True)
            ]
            if self.flat:
                parts = [[one_buffer(part)] for part in parts]
            for arrays in zip(*parts, strict=True):
                allreduce(arrays, self.algorithm)

    def let_go(self, tasks):
        """Wait for the devices' tasks; if one failed, let nobody wait for gradients that will never be ready."""
        for task, events in zip(tasks, self.events, strict=True):
            if task.exception() is not None:
                for event in events:
                    if not event.done():
                        event.set_result(None)

    def finish(self):
        """Let what is submitted to the devices from now on come after the exchange."""
        for device in self.devices:
            device.wait(device.channel.submit(device.channel.mark))


def split_in_buckets(params):
    """Slices of the list of parameters, from its end to its start."""
    slices, stop, nbytes = [], len(params), 0
    for i in reversed(range(len(params))):
        nbytes += params[i].nbytes
        if nbytes >= BUCKET or i == 0:
            slices.append(slice(i, stop))
            stop, nbytes = i, 0
    return slices
