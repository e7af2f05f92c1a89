"""How a GPU's array gets to another process: through a staging buffer in the host's memory, where MPI can use it.

    gpu(0) of rank 0 ──► staging buffer ◄──── messages ────► staging buffer ──► gpu(0) of rank 1
                    down                sums are made here                 up

The staging buffers of a GPU belong to a virtual device, its `Staging`. What a GPU sends and receives crosses the bus
twice, once down and once up, whatever the algorithm does between the processes. The sums are NumPy's, so they have the
same bits as those of virtual devices.

The buffers' pages are locked in memory ("pinned"), so the card's copy engine can read and write them directly.
"""

from ..devices.cpu import CPU
from ..devices.workers import Workers
from ..timing import span


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

    def empty(self, shape, dtype):
        """An uninitialised plain array in pinned memory."""
        import cupyx

        return cupyx.empty_pinned(shape, dtype)


def endpoint(device):
    """The device at which a device's messages begin and end: a virtual device itself; for a GPU, its `Staging`."""
    if device.kind == "cpu":
        return device
    if "_staging" not in vars(device):
        vars(device).setdefault("_staging", Staging(device))  # if two threads come here, both use the first one's
    return device._staging.set_up()


def add_down(batch, array):
    """Add to a batch: copy a device array down to its staging buffer; returns the flat plain array there.

    A virtual device's array is not copied; its own memory is returned, flat.
    """
    device, end, flat = array.device, endpoint(array.device), array.raw.reshape(-1)
    if end is device:
        return flat
    # All arrays of a GPU can share this buffer: the GPU's work is done in order, the next "down" after this one's "up".
    room = end.buffer("array", max(1, flat.size), flat.dtype)
    host = room[: flat.size]
    batch.wait(end, batch.submit(device, _down, flat, host))
    return host


def add_up(batch, exchanged, array, host):
    """Add to a batch: after the task ``exchanged``, copy ``host``, which `add_down` returned, to the GPU's array."""
    if array.device.kind == "gpu":
        batch.wait(array.device, exchanged)
        batch.submit(array.device, _up, exchanged, array.raw.reshape(-1), host, array.device)


def _down(flat, host):
    """Runs on the GPU's thread, and waits for the copy."""
    with span("allreduce"):
        flat.get(out=host)


def _up(exchanged, flat, host, device):
    """Runs on the GPU's thread. When it returns, ``host`` may be overwritten. Raises the error of the exchange."""
    if exchanged.error:
        raise exchanged.error
    with span("allreduce"):
        flat.set(host)
    device.stream.synchronize()
