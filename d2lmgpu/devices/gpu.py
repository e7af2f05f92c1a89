"""CUDA devices: a queue whose work launches CuPy's on a stream of its own."""

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
"""Of which the best says what the program's time is on a card's clock."""


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
                f"needs {OLDEST / 10}. For CUDA 12: {in_a_clone('gpu-cuda12')}. Or use cpu({self.index})."
            )
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.__enter__()  # never left: what `use` makes current, CuPy forgets after the next `with stream`

    def prepare(self):
        """Called on this device's thread before each piece of work: its card is current, whatever happened before."""
        import cupy

        if cupy.cuda.runtime.getDevice() != self.card:  # the end of a `with` block failed
            cupy.cuda.runtime.setDevice(self.card)

    def _limit_memory(self, nbytes):
        self.submit(self._use_pool, nbytes or 0).result()

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
        """Wait until what was launched here is done."""
        self.stream.synchronize()

    def record(self):
        """An event that happens when all work submitted here so far is done."""
        return self.submit(self.mark)  # a task is done when its kernels are launched, the event when they ran

    def end(self):
        """An event that happens when all that was launched here so far is done: only the stream knows."""
        return self.submit(self.finish)

    def after_fork(self):
        """CUDA does not survive a fork."""
        self.gone = f"{self}: {CUDA_IS_GONE}"
        return super().after_fork()

    def start_clock(self):
        """Called on this device's thread: an event, and the program's time when it happened.

        Of several the one that the program learned of soonest.
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
        """Called on this device's thread: an event at the end of its stream, whose time is known later."""
        return self.stream.record()

    def read_clock(self, known, event):
        """``event``, which must have happened, with the program's time, in seconds, at which it did.

        ``known``: another event with its time, as `start_clock` and this function give them. CUDA tells the time
        between two events as milliseconds in float32: after ten minutes to 62 microseconds only.
        """
        import cupy

        return event, known[1] + cupy.cuda.get_elapsed_time(known[0], event) / 1000

    def _make_comm_stream(self):
        return GPU(self.index, self.card)

    def await_event(self, event):
        """Called on this device's thread: what its stream is given next runs after ``event``.

        If that failed, there is no mark to wait for, but maybe something that was launched before.
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
    """The CUDA event that a GPU's task has as its result; None for a task of a CPU, which is done when it is done."""
    return event.value if hasattr(event.value, "synchronize") else None
