"""Let one thread do the work of several GPUs immediately, so that its launches can become a CUDA graph.

A graph records the work that streams are given, and which streams wait for which. If each device's own thread gave work
to its stream at its own time, nothing could be recorded as a whole. Here, the thread that adds work to the batch also
does it, device by device, and the streams wait for each other:

    Batch       submit to gpu(0)  ─►  queue ─►  thread of gpu(0) ─►  stream 0
                submit to gpu(1)  ─►  queue ─►  thread of gpu(1) ─►  stream 1
    Recording   submit to gpu(0), gpu(1)    ─►  this thread      ─►  streams 0 and 1
"""

import contextlib

from .batch import Batch
from .records import nothing_noted
from .task import Task
from .workers import working_for


class Recording(Batch):
    """A `Batch` for GPUs that does each piece of work as soon as it is added, so `commit` has nothing left to do."""

    def submit_to_all(self, devices, function, *args):
        """As in `Batch`, for a single device. Raises whatever the work raises."""
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
