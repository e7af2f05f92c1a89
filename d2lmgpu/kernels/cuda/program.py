"""Programs: a network of layers as launches of CUDA kernels, with all the arrays they need, for N images.

Layers that belong together are one stage: bias, ReLU and pooling are fused to the convolution before them, ReLU to a
dense layer, ReLU and pooling to batch norm. Nothing is allocated and nothing is waited for once a program is made, so
that its launches can be captured in a CUDA graph. Each program has its own arrays, so that one thread can have several
of them under way.
"""

import contextlib
import functools
import threading

import numpy as np

from ...base.free_list import FreeList
from ...devices.records import span
from ...layers import rounded_to_half
from ...layers.functions import images_last
from ...layers.loss import with_right_answers
from ..stages import Stages
from . import launch
from .dense import Dense, Head
from .launch import current_card, empty, run
from .stages import PRECISIONS, WinogradConvolution, make_stages, rounds_output

DTYPES = (np.float32,)

MAX_IDLE = 4
"""The most idle programs that a thread keeps: there is one for each network and number of images."""

_thread = threading.local()


class Program(Stages):
    """The stages of a network for N images of ``shape`` (C, H, W), on the current device.

    ``precision`` is one of `PRECISIONS`. With ``branches`` (`SideStreams`), what nothing in the program waits for
    is computed beside the main stream; the caller of `backward` then joins the branches. Without ``with_loss``,
    forward ends with the logits, and the caller writes ``dlogits`` before `backward`. ``input_grad``: whether the
    gradient of the images is wanted. ``own``: the caller's arrays for the images, the labels and the scale of all
    gradients, to be used in place of new ones.
    """

    def __init__(
        self, network, params, shape, N, precision="float32", branches=None, with_loss=True, input_grad=False, own=None
    ):
        import cupy

        self.x, self.labels, self.scale = own or (empty((N, *shape)), empty(N, np.int32), cupy.ones(1, np.float32))
        self.count = cupy.full(1, N, np.int32)  # how many of the N are examples
        self.step = cupy.zeros(1, np.int32)  # how often the program went forward
        mixed = self.mixed = PRECISIONS[precision]
        self.half_x = rounds_output(mixed, network)  # x must be rounded where it is written
        make = functools.partial(make_stages, mixed=mixed, count=self.count)
        super().__init__(network, params, self.x, shape, make, input_grad)
        self.logits = self.stages[-1].y
        self.dlogits = cupy.empty_like(self.logits)
        self.losses, self.hits = empty(N), empty(N, np.int32)
        self.loss, self.correct = cupy.zeros(1, np.float32), cupy.zeros(1, np.int32)
        self.epoch_loss, self.epoch_correct = cupy.zeros(1, np.float32), cupy.zeros(1, np.int32)
        self.bookkeeping = branches.branch() if branches else contextlib.nullcontext()  # of losses, hits and steps
        for stage, owned in zip(self.stages, self.owners, strict=True) if branches else ():
            if owned.start < owned.stop and stage.dx is not None and stage not in self.norms:
                stage.beside = branches.branch()
            if isinstance(stage, WinogradConvolution):
                stage.ahead = branches.branch()
        last = self.stages[-1]
        self.with_loss, self.has_head = with_loss, with_loss and isinstance(last, Dense) and last.can_be_head
        if self.has_head:
            arguments = self.labels, self.count, self.scale, self.losses, self.hits, self.dlogits
            self.stages[-1] = Head(last, *arguments, mixed)

    def sums(self, y, loss=None, scale=1):
        """The loss, and the number of right answers, of what went forward last: a new array of two.

        ``loss``: as in `loss_and_grads`, in place of the program's own; its gradient, times ``scale``, is put into
        ``dlogits``.
        """
        if loss:
            value, dlogits = loss(self.logits, y)
            self.dlogits[...] = dlogits * dlogits.dtype.type(scale)
            return with_right_answers(value, self.logits, y)
        sums = empty(2)
        sums[:1], sums[1:] = self.loss, self.correct
        return sums

    def forward(self, params, X=None, y=None, draws=None):
        """Logits, the summed loss, the number of right answers, all on the device.

        ``X`` and ``y``: N images and labels, which are copied to where the launches read them; None: they are there
        already. Without ``draws``, nothing is random.
        """
        self.use_draws(draws)
        if X is not None:
            self.x[...] = rounded_to_half(X) if self.half_x else X
        if y is not None and self.with_loss:
            self.labels[...] = y
        for stage, owned in zip(self.stages, self.owners, strict=True):
            if isinstance(stage, WinogradConvolution):
                stage.prepare(*params[owned])
        for stage, owned in zip(self.stages, self.owners, strict=True):
            stage.forward(*params[owned])
        if not self.with_loss:
            return
        N, classes = self.logits.shape
        if not self.has_head:
            arguments = self.logits, self.labels, self.count, self.scale, self.dlogits, self.losses, self.hits
            kernel = launch.rounding(launch.softmax_cross_entropy(classes, N), out=self.mixed)
            run(kernel, *arguments, np.int32(N))
        arguments = self.losses, self.hits, self.loss, self.correct, self.epoch_loss, self.epoch_correct, self.step
        with self.bookkeeping:
            run(launch.softmax_cross_entropy_sum(classes), *arguments, np.int32(N))

    def backward(self, params, grads, ready=None):
        """The gradients of what went forward last.

        ``ready`` is for programs without branches.
        """
        dy = self.dlogits
        for stage, owned in zip(reversed(self.stages), reversed(self.owners), strict=True):
            stage.backward(dy, params[owned], grads[owned])
            dy = stage.dx
            if ready is not None:
                ready(owned.start)
            if dy is None:
                break


def loss_and_grads(X, y, params, network, grads, ready=None, moments=(), scale=1.0, draws=None, loss=None, dx=None):
    """Loss and gradients, as in networks/plain.py; the moments of batch norm's inputs are written to ``moments``.

    ``X`` (N, C, H, W), ``params`` and ``grads`` are float32 CuPy arrays of this device. The cross-entropy is summed
    over examples, and its gradients, multiplied by ``scale``, are written to ``grads``; ``ready(i)`` is called when all
    work that computes those from number ``i`` on is in the stream. The result is an array of two: the loss, and how
    many images have their label as the largest logit. Random layers draw from ``draws``. ``loss``: another loss, a
    function of outputs and targets that returns it and its gradient with respect to the outputs. ``dx`` (N, C, H, W):
    where to write the gradient with respect to X, which a network's first layers have no use for.
    """
    with borrowed_program(network, params, X, loss is None, dx is not None) as program:
        program.use_statistics(moments)
        program.scale.fill(scale)
        with span("forward"):
            program.forward(params, X, y, draws)
        sums = program.sums(y, loss, scale)
        with span("backward"):
            program.backward(params, grads, ready)
        if dx is not None:
            dx[...] = program.stages[0].dx
        return sums


def outputs(X, params, network, statistics=()):
    """The network's outputs (N, ...), a new array.

    ``statistics``: the mean and variance of each batch norm layer, in one list.
    """
    with borrowed_program(network, params, X, with_loss=False) as program:
        program.use_statistics(() if statistics else program.new_moments(), statistics)
        program.forward(params, X)
        return program.logits.copy()


@contextlib.contextmanager
def borrowed_program(network, params, X, with_loss, input_grad=False):
    """This device's program for these sizes, in use here alone until it is given back; made if there is none.

    Raises ValueError, or what the layers raise, if the sizes do not fit together.
    """
    key = (current_card(), tuple(network), X.shape, tuple(param.shape for param in params), with_loss, input_grad)
    idle = _thread.__dict__.setdefault("idle", FreeList(MAX_IDLE))
    options = {"with_loss": with_loss, "input_grad": input_grad}
    program = idle.take(key) or Program(network, params, X.shape[1:], len(X), **options)
    yield program  # if work with it fails, it is not given back
    idle.give_back(key, program)


class Pass:
    """Some of a network's layers forward, and backward later: their program, which keeps everything in between.

    The arguments, for N images of ``shape``, and the methods are those of the CPU's `Pass`. ``scratch`` is not used,
    because each program has its own arrays. ``options``: other arguments of the `Program`.
    """

    def __init__(self, layers, params, shape, dtype, N, input_grad, with_loss, loss, scratch, **options):
        self.shape, self.input_grad, self.with_loss, self.loss = (N, *shape), input_grad, with_loss, loss
        options |= {"with_loss": with_loss and not loss, "input_grad": input_grad}
        self.program = Program(layers, params, shape, N, **options)
        self.moments = self.program.new_moments()
        self.program.use_statistics(self.moments)

    def forward(self, X, params, y=None, draws=None):
        """The outputs (..., N) for ``X`` (N, ...), or with targets ``y`` the loss and how many outputs are right."""
        program = self.program
        with span("forward"):
            program.forward(params, X, y, draws)
        return program.sums(y, self.loss) if self.with_loss else images_last(program.logits)

    def backward(self, params, grads, dy=None, scale=1):
        """Write the parameters' gradients to ``grads``; return the gradient of X (..., N) if it is wanted."""
        dlogits = self.program.dlogits
        if dy is not None:
            dlogits[...] = dy
        elif scale != 1:  # known only now, and a power of two, so that it may come after the loss
            dlogits *= dlogits.dtype.type(scale)
        with span("backward"):
            self.program.backward(params, grads)
        return images_last(self.program.stages[0].dx) if self.input_grad else None
