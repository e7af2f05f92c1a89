"""CUDA devices: the work in a GPU's queue launches CuPy's work on a stream of its own."""

import contextlib
import time

from ..arguments import in_a_clone
from .device import Device
from .discovery import CUDA_IS_GONE
from .errors import DeviceError
from .workers import Workers

OLDEST = 75
"""Compute capability, times ten, of the oldest GPUs that CUDA 13 compiles for."""

CLOCK_READINGS = 10
"""The best of which relates a card's clock to the program's."""


class GPU(Device):
    """A CUDA device: a worker thread that launches on its own stream of card ``card``.

    If there are more devices than cards, they share cards: on a machine with one GPU, gpu(0) and gpu(1) are two queues
    with separate arrays on card 0.
    """

    kind = "gpu"

    def __init__(self, index, card):
        self.card = card
        self._pool = contextlib.ExitStack()
        super().__init__(index, Workers(1))  # a thread of its own, whose current stream is the device's

    def _set_up(self):
        import cupy

        cupy.cuda.Device(self.card).use()
        if self.compute_capability < OLDEST and cupy.cuda.runtime.runtimeGetVersion() >= 13000:
            raise DeviceError(
                f"{self} has compute capability {self.compute_capability / 10}, for which CUDA 13 compiles nothing: it "
                f"needs {OLDEST / 10}. For CUDA 12: {in_a_clone('gpu-cuda12')}. Or use cpu({self.index})."
            )
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.__enter__()  # never left: after `with stream`, CuPy forgets what `use` has made current

    def prepare(self):
        """Called on this device's thread before each piece of work: makes its card current, if it is not."""
        import cupy

        if cupy.cuda.runtime.getDevice() != self.card:  # as after a `with` block whose end failed
            cupy.cuda.runtime.setDevice(self.card)

    def _limit_memory(self, nbytes):
        self.submit(self._use_pool, nbytes or 0).result()

    def _use_pool(self, nbytes):
        """Runs on this device's thread: gives it a memory pool of at most ``nbytes``; 0: no limit."""
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
        """Wait until what was launched here is done."""
        self.stream.synchronize()

    def record(self):
        """An event that happens when all work submitted here so far is done."""
        return self.submit(self.mark)  # a task is done when its kernels are launched, a mark when they have run

    def end(self):
        """An event that happens when all that was launched here so far is done, which only the stream knows."""
        return self.submit(self.finish)

    def after_fork(self):
        """CUDA does not survive a fork."""
        self.gone = f"{self}: {CUDA_IS_GONE}"
        return super().after_fork()

    def start_clock(self):
        """Called on this device's thread: an event, and the program's time when it happened.

        Several events are tried; returned is the one of which the program heard soonest.
        """
        readings = []
        for _ in range(CLOCK_READINGS):
            begin = time.perf_counter()
            event = self.stream.record()
            event.synchronize()
            now = time.perf_counter()
            readings.append((now - begin, now, event))
        _, now, event = min(readings, key=lambda reading: reading[0])
        return event, now

    clock_is_late = True

    @property
    def clock_name(self):
        return self.card

    def clock(self):
        """Called on this device's thread: an event at the end of its stream; its time is known later."""
        return self.stream.record()

    def read_clock(self, known, event):
        """``event``, which must have happened, with the program's time in seconds when it happened.

        ``known``: another event with its time, from `start_clock` or this function. CUDA gives the time between two
        events as milliseconds in float32: after ten minutes they are exact to 62 microseconds only.
        """
        import cupy

        return event, known[1] + cupy.cuda.get_elapsed_time(known[0], event) / 1000

    def _make_comm_stream(self):
        return GPU(self.index, self.card)

    def await_event(self, event):
        """Called on this device's thread: what its stream is given next runs after ``event``.

        A task that failed has no mark to wait for, but it may have launched something: its devices are waited for.
        """
        if event.error is None:
            self.await_mark(_mark(event))
        else:
            for device in event.places:
                device.finish()

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
    """The CUDA event that is the result of a GPU's task; None for a CPU's task, after which nothing is under way."""
    return event.value if hasattr(event.value, "synchronize") else None
