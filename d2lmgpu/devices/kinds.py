"""The two kinds of device, and how to get one.

``cpu(i)`` is a *virtual* device: a queue of work on NumPy arrays that belong to
it, with one core's worth of BLAS. ``gpu(i)`` is a CUDA device: the same queue,
but its functions launch CuPy work on a stream of their own. Both obey the same
rules, so a program that is right on two ``cpu`` devices is right on two GPUs.

Creating the first ``cpu`` device holds BLAS to one thread in the whole process
(through threadpoolctl), so that k devices are k cores' worth of arithmetic and
not k times all cores.
"""

import contextlib
import ctypes
import threading
import time

import numpy as np

from .device import Device
from .discovery import count_cores, find_gpus
from .errors import DeviceError
from .memory import Ledger, check_bytes
from .peers import connect
from .workers import Workers

OLDEST = 75
"""Compute capability, times ten, of the oldest GPUs that CUDA 13 compiles for."""


class CPU(Device):
    """A virtual device: a queue, its NumPy arrays, one core's worth of BLAS."""

    kind = "cpu"

    def __init__(self, index, workers=None):
        super().__init__(index, workers or _workers)

    def _set_up(self):
        from threadpoolctl import threadpool_limits

        threadpool_limits(limits=1, user_api="blas")
        _keep_freed_memory()

    def empty(self, shape, dtype):
        """An uninitialised plain array in this device's memory."""
        array = np.empty(shape, dtype)
        if self.ledger is not None:
            self.ledger.enter(array)
        return array

    def limit_memory(self, nbytes):
        """Let arrays that are made here from now on take so many bytes together at most; None: as many as there are.

        More is a `DeviceMemoryError`. The kernels' scratch paper is not counted.
        """
        self.ledger = None if nbytes is None else Ledger(self, check_bytes(nbytes))

    def _make_channel(self):
        return CPU(self.index, _channel_workers)


class GPU(Device):
    """A CUDA device: a worker thread that launches on its own stream of card ``card``.

    Devices outnumbering the cards share them: on a machine with one GPU, gpu(0)
    and gpu(1) are two queues with separate arrays on card 0.
    """

    kind = "gpu"

    def __init__(self, index, card):
        self.card = card
        self._pool = contextlib.ExitStack()
        super().__init__(index, Workers(1))  # a thread of its own, on which its stream is the current one

    def _set_up(self):
        import cupy

        cupy.cuda.Device(self.card).use()
        if self.compute_capability < OLDEST and cupy.cuda.runtime.runtimeGetVersion() >= 13000:
            raise DeviceError(
                f"{self} has compute capability {self.compute_capability / 10}, for which CUDA 13 compiles nothing: it "
                f"needs {OLDEST / 10}. Install d2lmgpu[gpu-cuda12] instead of [gpu], or use cpu({self.index})."
            )
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.__enter__()  # never left: what `use` makes current, CuPy forgets after the next `with stream`

    def prepare(self):
        """Called on this device's thread before each piece of work: its card is current, whatever happened before."""
        import cupy

        if cupy.cuda.runtime.getDevice() != self.card:  # the end of a `with` block failed
            cupy.cuda.runtime.setDevice(self.card)

    def limit_memory(self, nbytes):
        """Let arrays that are made here from now on take so many bytes together at most; None: as many as there are.

        More is an error of CuPy's, a MemoryError.
        """
        self.submit(self._use_pool, 0 if nbytes is None else check_bytes(nbytes)).result()

    def _use_pool(self, nbytes):
        """Runs on this device's thread, which gets a memory pool of its own. It grows on demand; 0: without limit."""
        import cupy

        pool = cupy.cuda.MemoryPool()
        pool.set_limit(size=nbytes)
        self._pool.close()
        self._pool.enter_context(cupy.cuda.using_allocator(pool.malloc))

    @property
    def compute_capability(self):
        """Times ten: 90 for an H100."""
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(self.card)
        return 10 * properties["major"] + properties["minor"]

    @contextlib.contextmanager
    def as_current(self):
        """Within the ``with`` block the calling thread launches on this device's stream."""
        import cupy

        with cupy.cuda.Device(self.card), self.stream:
            yield

    def finish(self):
        """Called on this device's thread: wait until what it launched is done."""
        self.stream.synchronize()

    def record(self):
        """An event that happens when all work submitted here so far is done."""
        return self.submit(self.mark)  # a task is done when its kernels are launched, the event when they ran

    def is_idle(self):
        """False: only the stream knows, once it is waited for."""
        return False

    def start_clock(self):
        """Called on this device's thread: an event, and the program's time when it happened."""
        event = self.stream.record()
        event.synchronize()
        return event, time.perf_counter()

    clock_is_late = True

    def clock(self):
        """Called on this device's thread: an event at the end of its stream, whose time is known later."""
        return self.stream.record()

    def read_clock(self, known, event):
        """``event``, which must have happened, with the program's time, in seconds, at which it did.

        ``known``: another event with its time, as `start_clock` and this function give them. CUDA tells the time
        between two events as milliseconds in float32: after ten minutes to 62 microseconds only.
        """
        import cupy

        return event, known[1] + cupy.cuda.get_elapsed_time(known[0], event) / 1000

    def _make_channel(self):
        return GPU(self.index, self.card)

    def await_event(self, event):
        """Called on this device's thread: what its stream is given next runs after ``event``."""
        self.await_mark(_mark(event))

    def mark(self):
        """Called on this device's thread: a CUDA event at the end of its stream."""
        return self.stream.record()

    def await_mark(self, mark):
        """Called on this device's thread: its stream waits for another device's CUDA event."""
        if mark is not None:
            self.stream.wait_event(mark)

    def empty(self, shape, dtype):
        """An uninitialised plain array in this device's memory."""
        import cupy

        return self.submit(cupy.empty, shape, dtype).result()


def _mark(event):
    """The CUDA event that a GPU's task has as its result; None for a task of a CPU, which is done when it is done."""
    result = None if event.exception() else event.result()
    return result if hasattr(result, "synchronize") else None


def _keep_freed_memory():
    """Ask glibc to keep freed memory instead of returning it to the operating system.

    A training step frees and allocates the same few megabytes again and again;
    fresh pages, which the kernel must zero, cost it about a third of its time.
    M_MMAP_THRESHOLD is -3 and M_TRIM_THRESHOLD -1 in malloc.h; elsewhere than on
    glibc nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    mallopt(-3, 1 << 30)
    mallopt(-1, 1 << 30)


_workers = Workers(count_cores())
_channel_workers = Workers(count_cores())
"""Channels have workers of their own, as a GPU's copy engines are not its multiprocessors.

Otherwise a device's exchange would only begin when one of the devices has finished what it computes.
"""
_devices = {}
_devices_lock = threading.Lock()


def _device(kind, index, *args):
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise DeviceError(f"a device's index is a whole number from 0, not {index!r}")
    with _devices_lock:
        if (kind, index) not in _devices:
            _devices[kind, index] = kind(index, *args)
        return _devices[kind, index]


def cpu(i=0):
    """Virtual device number ``i`` on the CPU. There may be more of them than cores."""
    return _device(CPU, i)


def gpu(i=0):
    """GPU number ``i``; on a machine with fewer cards, devices share them in turn.

    Raises DeviceError where there is no GPU, saying why.
    """
    cards, reason = find_gpus()
    if cards == 0:
        raise DeviceError(f"gpu({i}): {reason}. Use cpu({i}), or try_gpu({i}) to fall back to it.")
    device = _device(GPU, i, i % cards if isinstance(i, int) else 0)
    for other in [device for kind, device in list(_devices.items()) if kind[0] is GPU]:
        connect(device.card, other.card)
    return device


def try_gpu(i=0):
    """``gpu(i)`` on a machine with a GPU, otherwise ``cpu(i)``.

    One machine always answers with one kind, so that a list made with
    ``[try_gpu(i) for i in range(k)]`` never mixes GPUs and CPUs.
    """
    return gpu(i) if find_gpus()[0] else cpu(i)


def try_all_gpus():
    """A device for each GPU of the machine, or ``[cpu(0)]`` where there is none."""
    return [try_gpu(i) for i in range(max(1, find_gpus()[0]))]
