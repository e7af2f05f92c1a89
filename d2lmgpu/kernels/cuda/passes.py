"""Run some of a network's layers forward and back: both at once, or each way by itself.

Both use a `Program`. Each has its own arrays, so that one thread can have several of them under way.
"""

import contextlib
import threading

from ...spans import span
from ..stages import Idle, images_last
from .program import Program
from .run import current_card

MOST_IDLE = 4
"""The most idle programs that a thread keeps: there is one for each network and number of images."""

_thread = threading.local()


def in_parts(X, y, params, network, grads, ready=None, moments=(), scale=1.0, draws=None, loss=None, dx=None):
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
            dx[...] = program.dx
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
    options = {"with_loss": with_loss, "input_grad": input_grad}
    key = (current_card(), tuple(network), X.shape, tuple(param.shape for param in params), *options.values())
    idle = _thread.__dict__.setdefault("idle", Idle(MOST_IDLE))
    program = idle.take(key) or Program(network, params, X.shape[1:], len(X), **options)
    yield program  # if work with it fails, it is not given back
    idle.give_back(key, program)


class Pass:
    """Some of a network's layers forward, and backward later: their program, which keeps everything in between.

    The arguments, for N images of ``shape``, and the methods are those of the CPU's `Pass`. ``papers`` is not used,
    because each program has its own arrays. ``how``: other arguments of the `Program`.
    """

    def __init__(self, layers, params, shape, dtype, N, input_grad, with_loss, loss, papers, **how):
        self.shape, self.input_grad, self.with_loss, self.loss = (N, *shape), input_grad, with_loss, loss
        how |= {"with_loss": with_loss and not loss, "input_grad": input_grad}
        self.program = Program(layers, params, shape, N, **how)
        self.moments = self.program.new_moments()
        self.program.use_statistics(self.moments)

    def forward(self, X, params, y=None, draws=None):
        """As in the CPU's `Pass`."""
        program = self.program
        with span("forward"):
            program.forward(params, X, y, draws)
        return program.sums(y, self.loss) if self.with_loss else images_last(program.logits)

    def backward(self, params, grads, dy=None, scale=1):
        """As in the CPU's `Pass`."""
        dlogits = self.program.dlogits
        if dy is not None:
            dlogits[...] = dy
        elif scale != 1:  # known only now, and a power of two, so that it may come after the loss
            dlogits *= dlogits.dtype.type(scale)
        with span("backward"):
            self.program.backward(params, grads)
        return images_last(self.program.dx) if self.input_grad else None
