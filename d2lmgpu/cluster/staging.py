"""How a GPU's array gets to another process: through a staging buffer in the host's memory, where MPI can use it.

    gpu(0) of rank 0 ──► staging buffer ◄──── messages ────► staging buffer ──► gpu(0) of rank 1
                    down                sums are made here                 up

The staging buffers of a GPU belong to a virtual device, its `Staging`. What a GPU sends and receives crosses the bus
twice, once down and once up, whatever the algorithm does between the processes. The sums are NumPy's, so they have the
same bits as those of virtual devices.

The buffers' pages are locked in memory ("pinned"), so the card's copy engine can read and write them directly.
"""

from ..devices.cpu import CPU
from ..devices.records import span
from ..devices.workers import Workers


class Staging(CPU):
    """The virtual device that stands for ``gpu``, a GPU device or its comm stream, in exchanges between processes.

    Like its GPU it has a worker thread of its own.
    """

    def __init__(self, gpu):
        self.gpu = gpu
        super().__init__(gpu.index, Workers(1))
        self.main = self if gpu.main is gpu else endpoint(gpu.main)

    def __repr__(self):
        return repr(self.gpu)

    def _set_up(self):
        self.gpu.make_current()  # pinned memory belongs to a context
        super()._set_up()

    def empty(self, shape, dtype):
        """An uninitialised plain array in pinned memory."""
        import cupyx

        return cupyx.empty_pinned(shape, dtype)


def endpoint(device):
    """The device at which a device's messages begin and end: for a virtual device, itself; for a GPU, its `Staging`."""
    if device.kind == "cpu":
        return device
    if "_staging" not in vars(device):
        vars(device).setdefault("_staging", Staging(device).set_up())  # if two threads come here, both use one
    return device._staging


def add_staged(batch, devices, flat, size, dtype, work):
    """Add ``work(arrays)`` to a batch, which all devices do together, on flat plain arrays in the host's memory.

    ``flat[i]``, which is looked up when device i has done its earlier work, is its flat plain array of ``size``
    elements. A virtual device's array is given to ``work`` itself; a GPU's is copied down to its staging buffer before
    the work, and up again after it.
    """
    ends, hosts = [endpoint(device) for device in devices], {}
    for i, (device, end) in enumerate(zip(devices, ends, strict=True)):
        if end is not device:
            # All arrays of a GPU can share this buffer: its work is done in order, the next "down" after this one's
            # "up".
            hosts[i] = end.buffer("array", max(1, size), dtype)[:size]
            batch.wait(end, batch.submit(device, _down, flat, i, hosts[i]))
    done = batch.submit_to_all(ends, _work, work, flat, hosts, len(ends))
    for i, host in hosts.items():
        batch.wait(devices[i], done)
        batch.submit(devices[i], _up, done, flat, i, host, devices[i])


def _work(work, flat, hosts, count):
    work([hosts[i] if i in hosts else flat[i] for i in range(count)])


def _down(flat, i, host):
    """Copy the array to the host, and wait for the copy; runs on the GPU's thread."""
    with span("allreduce"):
        flat[i].get(out=host)


def _up(done, flat, i, host, device):
    """Copy ``host`` to the GPU, after which it may be overwritten; runs on its thread. Raises the error of the work."""
    if done.error:
        raise done.error
    with span("allreduce"):
        flat[i].set(host)
    device.stream.synchronize()
