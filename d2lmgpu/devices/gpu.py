"""CUDA devices: the functions in a GPU's queue launch CuPy's kernels on a CUDA stream of the device's own.

The queue's thread goes on as soon as a kernel is launched; the stream runs the kernels one after the other. So a task
is done before its kernels have run, and its *mark*, a CUDA event in the stream, says when they have.

A CUDA graph records the work that streams are given, and which streams wait for which. If each device's own thread gave
work to its stream at its own time, nothing could be recorded as a whole. So a `Recording` does the work of a `Batch` on
one thread, as soon as it is added, device by device, and the streams wait for each other:

    Batch       submit to gpu(0)  ─►  queue ─►  thread of gpu(0) ─►  stream 0
                submit to gpu(1)  ─►  queue ─►  thread of gpu(1) ─►  stream 1
    Recording   submit to gpu(0), gpu(1)    ─►  this thread      ─►  streams 0 and 1
"""

import contextlib
import time

from ..base.packages import in_a_clone
from .batch import Batch
from .device import Device
from .errors import DeviceError, errors_of_cuda
from .records import nothing_noted
from .task import Task
from .workers import Workers, working_for

OLDEST = 75
"""The compute capability, times ten, of the oldest GPUs that CUDA 13 compiles for."""

CLOCK_READINGS = 10
"""How many times a card's clock is read to relate it to the program's clock: the fastest reading is used."""


def mark_of(stream):
    """A CUDA event to wait for, at the end of a stream whose card is current. It records no time, which is faster."""
    import cupy

    return stream.record(cupy.cuda.Event(disable_timing=True))


class GPU(Device):
    """A CUDA device: a worker thread that launches on its own stream of card ``card``.

    If there are more devices than cards, they share cards: on a machine with one GPU, gpu(0) and gpu(1) are two queues
    with separate arrays on card 0.
    """

    kind = "gpu"
    is_limited = False

    def __init__(self, index, card):
        import cupy

        self.cupy = cupy
        self.card = self.clock_name = card
        self._pool = contextlib.ExitStack()
        super().__init__(index, Workers(1))  # a thread of its own, whose current stream is the device's

    def _set_up(self):
        if self.compute_capability < OLDEST and self.cupy.cuda.runtime.runtimeGetVersion() >= 13000:
            raise DeviceError(
                f"{self} has compute capability {self.compute_capability / 10}, for which CUDA 13 compiles nothing: it "
                f"needs {OLDEST / 10}. For CUDA 12: {in_a_clone('gpu-cuda12')}. Or use cpu({self.index})."
            )
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.stream.__enter__()  # and never left; a stream made current by `use` is forgotten after any `with stream`

    def set_up(self):
        """Prepare the device for work and return it. Raises DeviceError if CUDA reports an error."""
        try:
            return super().set_up()
        except errors_of_cuda() as error:
            raise DeviceError(f"{self} cannot be used: {error}; use another device") from error

    def make_current(self):
        """Make the device's card the calling thread's current one from now on.

        Whatever a thread asks of CUDA (pinned memory, the time between two events) makes a context on its current card
        if there is none, which takes half a gigabyte there. At first the current card is card 0, even in a process that
        is to use another one. A ``with`` block is not enough: at its end, the previous card becomes current again.
        """
        self.cupy.cuda.Device(self.card).use()

    def prepare(self):
        """Called on this device's thread before each piece of work: makes its card current if it is not."""
        if self.cupy.cuda.runtime.getDevice() != self.card:  # after a `with` block whose end has failed
            self.cupy.cuda.runtime.setDevice(self.card)

    def _limit_memory(self, nbytes):
        self.submit(self._use_pool, nbytes or 0).result()
        self.is_limited = nbytes is not None

    def _use_pool(self, nbytes):
        """Runs on this device's thread: gives it a memory pool of at most ``nbytes`` (0: no limit)."""
        pool = self.cupy.cuda.MemoryPool()
        pool.set_limit(size=nbytes)
        self._pool.close()
        self._pool.enter_context(self.cupy.cuda.using_allocator(pool.malloc))

    @property
    def compute_capability(self):
        """The card's compute capability, times ten: 90 for an H100."""
        properties = self.cupy.cuda.runtime.getDeviceProperties(self.card)
        return 10 * properties["major"] + properties["minor"]

    @contextlib.contextmanager
    def as_current(self):
        """Within the ``with`` block, the calling thread launches on this device's stream."""
        with self.cupy.cuda.Device(self.card), self.stream:
            yield

    def finish(self):
        """Wait until what was launched here has run."""
        self.stream.synchronize()

    def record(self):
        """A `Task` whose result is a CUDA event that completes when all work submitted here so far has run."""
        return self.submit(self.mark)  # a task is done when its kernels are launched, a mark when they have run

    def end(self):
        """A `Task` that completes when all that was launched here so far has run, which only the stream knows."""
        return self.submit(self.finish)

    def start_clock(self):
        """Called on this device's thread: a CUDA event, and the program's time when it completed.

        Several events are recorded. The one whose completion the program noticed soonest is returned, because its time
        is the most exact.
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

    def clock(self):
        """Called on this device's thread: an event at the end of its stream; its time is known once it completes."""
        return self.stream.record()

    def read_clock(self, known, event):
        """A pair: ``event``, which must have completed, and the program's time in seconds when it did.

        ``known``: another event with its time, from `start_clock` or this function. CUDA gives the time between two
        events as milliseconds in float32: for events that are ten minutes apart, in steps of 62 microseconds.
        """
        return event, known[1] + self.cupy.cuda.get_elapsed_time(known[0], event) / 1000

    def _make_comm_stream(self):
        return GPU(self.index, self.card)

    def await_event(self, event):
        """Called on this device's thread: what is launched on its stream from now on runs after ``event``.

        A task that failed has no mark to wait for, but it may have launched kernels: then this waits for its devices.
        """
        if event.error is not None:
            for device in event.places:
                device.finish()
        elif hasattr(event.value, "synchronize"):  # a CUDA event; a CPU's task has left nothing running
            try:
                self.stream.wait_event(event.value)
            except Exception:
                event.value.synchronize()  # the error is reported, and what comes next still runs after the event
                raise

    def mark(self):
        """Called on this device's thread: a CUDA event at the end of its stream."""
        return mark_of(self.stream)

    def empty(self, shape, dtype):
        """An uninitialised plain array in this device's memory."""
        return self.submit(self.cupy.empty, shape, dtype).result()


class Recording(Batch):
    """A `Batch` for GPUs that does each piece of work as soon as it is added, so `commit` has nothing left to do."""

    def submit_to_all(self, devices, function, *args):
        """Do the work on a single device now. Raises whatever the work raises."""
        (device,) = devices
        task = Task((device,), function, args, self._after.pop(device, ()))
        with device.as_current(), working_for(device):
            device.do(task)
        task.result()
        return task


class GraphMemory:
    """The memory of a graph's arrays, reserved as long as this object exists.

    A graph does not own memory: it writes to addresses. Memory that is freed during the recording returns to the
    graph's own pool; only the rest of the recording can take it again, in the order of the streams.

    Source: PyTorch's private pools for graphs, torch.cuda.graph, "CUDA semantics".
    """

    def __init__(self, queues):
        import cupy

        self._pool = cupy.cuda.MemoryPool()
        self._buffers = [(queue, {}) for queue in queues]

    @contextlib.contextmanager
    def in_use(self):
        """Within the block, this thread's arrays and the queues' buffers use this memory; transfers are not recorded.

        Earlier work on the queues' devices must be finished.
        """
        import cupy

        with cupy.cuda.using_allocator(self._pool.malloc), nothing_noted(), contextlib.ExitStack() as stack:
            for queue, buffers in self._buffers:
                stack.enter_context(queue.with_buffers(buffers))
            yield
