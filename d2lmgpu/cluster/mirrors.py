"""How a GPU's array gets to another process: by way of its mirror in the host's memory, which MPI can read.

    gpu(0) of rank 0 ──► its mirror ◄──── messages ────► mirror ──► gpu(0) of rank 1
                     down           sums are made here          up

A mirror is a virtual device. What one GPU sends and receives goes over the bus twice, once down and once up, whatever
the algorithm does with it between the processes. Sums are NumPy's, and so have the bits of virtual devices'.

Pages of a mirror are locked in memory ("pinned"): the card's copy engine reads and writes them itself.
"""

from ..devices.cpu import CPU
from ..devices.workers import Workers
from ..timing import span


class Mirror(CPU):
    """The virtual device that stands for ``gpu``, a GPU device or its channel, in exchanges between processes.

    It has a worker of its own, as its GPU has.
    """

    def __init__(self, gpu):
        self.gpu = gpu
        super().__init__(gpu.index, Workers(1))
        self.main = self if gpu.main is gpu else end_of(gpu.main)

    def __repr__(self):
        return repr(self.gpu)

    def empty(self, shape, dtype):
        """An uninitialised plain array in pinned memory."""
        import cupyx

        return cupyx.empty_pinned(shape, dtype)


def end_of(device):
    """Where messages of a device begin and end: there if it is virtual, at its `Mirror` if it is a GPU."""
    if device.kind == "cpu":
        return device
    if "_mirror" not in vars(device):
        vars(device).setdefault("_mirror", Mirror(device))
    return device._mirror.set_up()


def add_down(batch, array):
    """Add to a batch: what a device array has is copied down to its mirror; returns the flat plain array there.

    A virtual device's own array is returned as it is.
    """
    device, end, flat = array.device, end_of(array.device), array.raw.reshape(-1)
    if end is device:
        return flat
    room = end.buffer("array", max(1, flat.size), flat.dtype)  # free again after "up": a GPU's work is done in turn
    host = room[: flat.size]
    batch.wait(end, batch.submit(device, _down, flat, host))
    return host


def add_up(batch, exchanged, array, host):
    """Add to a batch: after the task ``exchanged``, what `add_down` has returned is copied up again."""
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
