"""Run some of a network's layers forward and back: both at once, or each way by itself.

Both use a `Program`, or `Granules` with exact sums. Each has its own arrays, so that one thread can have several of
them under way.
"""

import contextlib
import threading

from ...exact import ExactSums
from ..stages import Idle, images_last, timed, to_the_end
from .granules import Granules, noted_here
from .program import Program
from .run import current_card

MOST_IDLE = 4
"""The most idle programs that a thread keeps: there is one for each network and number of images."""

_thread = threading.local()


def in_parts(
    X, y, params, network, grads, ready=None, sync_statistics=(), scale=1.0, draws=None, loss=None, dx=None, exact=None
):
    """Loss and gradients as a generator, pausing where ``sync_statistics`` are to be summed: networks/as_written.py.

    ``X`` (N, C, H, W), ``params`` and ``grads`` are float32 CuPy arrays of this device. The cross-entropy is summed
    over examples, and its gradients, multiplied by ``scale``, are written to ``grads``; ``ready(i)`` is called when all
    work that computes those from number ``i`` on is in the stream. The result is an array of two: the loss, and how
    many images have their label as the largest logit. Random layers draw from ``draws``. ``loss``: another loss, a
    function of outputs and targets that returns it and its gradient with respect to the outputs. ``dx`` (N, C, H, W):
    where to write the gradient with respect to X, which a network's first layers have no use for. ``exact``: the
    `ExactSums` by which gradients are added to ``grads``, which are int64 then.
    """
    with borrowed_program(network, params, X, loss is None, dx is not None, exact) as program:
        program.use_statistics(sync_statistics)
        program.scale.fill(scale)
        yield from timed("forward", program.forward(params, X, y, draws))
        sums = program.sums(y, loss, scale)
        yield from timed("backward", program.backward(params, grads, ready))
        if dx is not None:
            dx[...] = program.dx
        return sums


def outputs(X, params, network, statistics=(), exact=False):
    """The network's outputs (N, ...), a new array.

    ``statistics``: the mean and variance of each batch norm layer, in one list. ``exact``: whether to compute by
    granules.
    """
    exact = ExactSums(len(X), "of these images") if exact else None
    with borrowed_program(network, params, X, with_loss=False, exact=exact) as program:
        program.use_statistics(() if statistics else program.own_sync_statistics(), statistics)
        to_the_end(program.forward(params, X))
        return program.logits.copy()


@contextlib.contextmanager
def borrowed_program(network, params, X, with_loss, input_grad=False, exact=None):
    """This device's program for these sizes, in use here alone until it is given back; made if there is none.

    If an `ExactSums` is given as ``exact``, the program is a `Granules`.

    Raises ValueError, or what the layers raise, if the sizes do not fit together.
    """
    options = {"with_loss": with_loss, "input_grad": input_grad}
    kind = Granules if exact else Program
    key = (current_card(), tuple(network), X.shape, tuple(param.shape for param in params), *options.values(), kind)
    idle = _thread.__dict__.setdefault("idle", Idle(MOST_IDLE))
    program = idle.take(key) or kind(network, params, X.shape[1:], len(X), **options)
    program.exact = exact and noted_here(exact)
    yield program  # if work with it fails, it is not given back
    idle.give_back(key, program)


class Pass:
    """Some of a network's layers forward, and backward later: their program, which keeps everything in between.

    The arguments, for N images of ``shape``, and the methods are those of the CPU's `Pass`. ``papers`` is not used,
    because each program has its own arrays. ``how``: other arguments of the `Program`.
    """

    def __init__(self, layers, params, shape, dtype, N, input_grad, with_loss, loss, papers, exact=False, **how):
        self.shape, self.input_grad, self.with_loss, self.loss = (N, *shape), input_grad, with_loss, loss
        how |= {"with_loss": with_loss and not loss, "input_grad": input_grad}
        self.program = (Granules if exact else Program)(layers, params, shape, N, **how)
        self.sync = self.program.own_sync_statistics()
        self.program.use_statistics(self.sync)

    def forward(self, X, params, y=None, draws=None, exact=None):
        """As in the CPU's `Pass`."""
        program = self.program
        program.exact = exact and noted_here(exact)
        yield from timed("forward", program.forward(params, X, y, draws))
        return program.sums(y, self.loss) if self.with_loss else images_last(program.logits)

    def backward(self, params, grads, dy=None, scale=1):
        """As in the CPU's `Pass`."""
        for program, part in self.program.parts:
            if dy is not None:
                program.dlogits[...] = dy[part]
            elif scale != 1:  # known only now, and a power of two, so that it may come after the loss
                program.dlogits *= program.dlogits.dtype.type(scale)
        yield from timed("backward", self.program.backward(params, grads))
        return images_last(self.program.dx) if self.input_grad else None
