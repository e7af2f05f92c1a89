"""A program: a network's layers as stages, with all the arrays that they need for micro-batches of n images.

A program is made once for a network, a size of image and an n, and is then used again and again: in the steady state a
step allocates nothing. Layers that belong together become one stage; a layer without a fast implementation is a stage
as it is written.

Programs belong to no device; they are scratch memory of a core: each computation borrows the one that was given back
last, so that k devices taking turns on few cores all find it in the core's cache.
"""

import contextlib
import functools
import itertools
import math

import numpy as np

from ...base.free_list import FreeList
from ...devices.records import span
from ...layers import batch_norm
from ...layers.functions import EACH_BY_ITSELF, function_of, output_shapes
from ...layers.loss import right_answers
from ..stages import Stages
from .stages import OtherLoss, SoftmaxCrossEntropy, make_stages

DTYPES = (np.float32, np.float64)

MICRO_BATCH = 64
"""The most images that go through the network at a time.

Fewer images stay in the cache; more images spend less time under the interpreter's lock, for which threads of several
devices wait (docs/performance.md: for two devices, 32 to 128 do equally well; for one, 32 and
64).
"""

MAX_OUTPUTS = 2**24
"""The most outputs of all layers together for a micro-batch, which is smaller where images or networks are large."""

MAX_IDLE = 12
"""The most lists of programs that are kept while unused, for all networks and all numbers of images together."""

_idle = FreeList(MAX_IDLE)  # lists of programs


def loss_and_grads(X, y, params, network, grads, ready=None, moments=(), scale=1.0, draws=None, loss=None, dx=None):
    """Loss and gradients, as in networks/plain.py; the moments of batch norm's inputs are written to ``moments``.

    ``X`` (N, C, H, W) and the parameters are NumPy arrays of one dtype, ``y`` (N,). The cross-entropy is summed over
    examples, and its gradients, multiplied by ``scale``, are written to ``grads``; ``ready(i)`` is called as soon as
    those from number ``i`` on are written. The result is an array of two: the loss, and how many images have their
    label as the largest logit. Random layers draw from ``draws``. ``loss``: another loss, a function of outputs and
    targets that returns it and its gradient with respect to the outputs. ``dx`` (N, C, H, W): where to write the
    gradient with respect to X, which a network's first layers have no use for.
    """
    with borrowed_programs(network, params, X, input_grad=dx is not None) as programs:
        for program in programs:
            program.use_loss(loss)
        sums, rounds = np.zeros(2), rounds_of(programs, len(X), moments)
        for assigned in rounds:
            sums += forward_together(assigned, X, y, moments, draws)
            is_last = assigned is rounds[-1]
            options = {"ready": ready if is_last else None, "dx": None if dx is None else np.moveaxis(dx, 0, -1)}
            backward_together(assigned, moments, scale, grads if is_last else None, **options)
    return sums


def outputs(X, params, network, statistics=()):
    """The network's outputs (N, ...), a new array.

    ``statistics``: the mean and variance of each batch norm layer, in one list.
    """
    with borrowed_programs(network, params, X, statistics) as programs:
        moments = () if statistics else programs[0].new_moments()
        Y = np.empty((len(X), *programs[0].logits.shape[:-1]), X.dtype)
        for assigned in rounds_of(programs, len(X), moments):
            forward_together(assigned, X, None, moments)
            for program, part in assigned:
                Y[part] = np.moveaxis(program.logits[..., : program.m], -1, 0)
    return Y


def rounds_of(programs, N, moments):
    """The rounds in which programs take slices of N images: lists of (program, slice).

    With ``moments`` of batch norm all parts are in one round, because they wait for each other.
    """
    pairs, start, in_turn = [], 0, itertools.cycle(programs)
    while start < N:
        program = next(in_turn)
        pairs.append((program, slice(start, min(N, start + program.n))))
        start += program.n
    return [pairs] if moments else [[pair] for pair in pairs]


def forward_together(assigned, X, y, moments, draws=None):
    """Send all parts forward to the end, from one batch norm layer to the next: there they wait for each other.

    ``moments``: an array for each of these layers, for the sum over all parts; empty if statistics are given. Returns
    an array of two, the summed loss and how many images have their label as the largest logit; 0 without labels ``y``.
    """
    with span("forward"):
        for i in range(len(assigned[0][0].norms) + 1):
            for program, part in assigned:
                if i == 0:
                    program.begin(X[part], draws and draws.after(part.start))
                program.forward(i)
            if i < len(moments):
                moments[i][...] = sum(program.norms[i].moments for program, _ in assigned)
                for program, _ in assigned:
                    program.norms[i].whole = moments[i]
        return 0 if y is None else sum(program.sums(y[part]) for program, part in assigned)


def backward_together(assigned, moments, scale, grads, ready=None, add=False, dy=None, dx=None):
    """Send all parts back to the beginning, from one batch norm layer to the one before.

    With ``grads``, the first part's gradients are written there, and those of the others added. ``add``: whether to add
    those of the first part as well. ``dy`` (N, ...): the gradient of the outputs; without it, that of the loss is used.
    ``dx`` (..., N): where to write the gradient of X, or None.
    """
    with span("backward"):
        for i in reversed(range(len(moments) + 1)):
            for program, part in assigned:
                if i == len(moments):
                    # only now: programs may share scratch arrays
                    program.begin_backward(scale, None if dy is None else dy[part])
                is_last = program is assigned[-1][0]
                program.backward(i, grads, add or program is not assigned[0][0], ready if is_last else None)
                if i == 0 and dx is not None:
                    dx[..., part] = program.stages[0].dx[..., : program.m]
            if i:
                whole_sums = sum(program.norms[i - 1].sums for program, _ in assigned)
                for program, _ in assigned:
                    program.norms[i - 1].whole_sums = whole_sums


@contextlib.contextmanager
def borrowed_programs(network, params, X, statistics=(), input_grad=False):
    """Programs with ``params`` loaded for the images ``X``, used here alone until they are given back; made if need be.

    Usually this is one program, which takes one part of the images after another, since layers treat each image by
    itself. Batch norm needs all images in the middle of the network: then there is a program for each part, so that all
    parts can wait there; but not with ``statistics`` (see `outputs`). ``input_grad``: as in `Stages`.

    Raises what the layers raise if the sizes do not fit together.
    """
    network, shape = tuple(network), X.shape[1:]
    sizes = counts_of_parts(network, shape, X.dtype, len(X))
    if statistics or not any(layer.channels for layer in network):
        sizes = [max(sizes)]
    key = (network, shape, tuple(param.shape for param in params), X.dtype, input_grad, *sizes)
    programs = _idle.take(key)
    if programs is None:
        programs = [Program(network, params, shape, X.dtype, n, input_grad) for n in sizes]
    for program in programs:
        program.load(params)
        program.use_statistics(statistics=statistics)
    yield programs  # if work with them fails, they are not given back
    for program in programs:
        program.unload()
    _idle.give_back(key, programs)


def counts_of_parts(network, shape, dtype, N):
    """How many of N images of this ``shape`` go through the network at a time: a list of numbers, as equal as possible.

    All at a time, if there is a layer that needs all images, other than batch norm.
    """
    others = {function_of(layer)[0] for layer in network} - EACH_BY_ITSELF - {batch_norm}
    most = N if others else max(1, min(MICRO_BATCH, MAX_OUTPUTS // _outputs_of(network, shape, dtype)))
    parts = -(-N // most)
    return [stop - start for start, stop in itertools.pairwise(i * N // parts for i in range(parts + 1))]


@functools.lru_cache(maxsize=64)
def _outputs_of(network, shape, dtype):
    """How many numbers all layers output for an image."""
    return sum(map(math.prod, output_shapes(network, shape, dtype)))


class Program(Stages):
    """The stages of a network for images of ``shape`` (C, H, W), n at a time.

    ``input_grad``: whether the gradient of the images is wanted. ``dlogits``: the gradient of the outputs, with which
    `backward` begins.
    """

    def __init__(self, network, params, shape, dtype, n, input_grad=False):
        self.n = n
        super().__init__(network, params, np.empty((*shape, n), dtype), shape, make_stages, input_grad)
        self.cuts = [0, *map(self.stages.index, self.norms), len(self.stages)]
        self.more = [np.empty_like(param) for param in params] if self.norms else None  # gradients to be added
        self.logits, self.cross_entropy = self.stages[-1].y, None

    def load(self, params):
        """Take a step's parameters, of which stages may keep views until `unload`, and begin new sums of gradients."""
        for stage, owned in zip(self.stages, self.owners, strict=True):
            if owned.start < owned.stop:
                stage.load(params[owned])

    def unload(self):
        """Forget the parameters, which are not the program's own."""
        for stage in self.stages:
            stage.params = ()

    def use_loss(self, function):
        """Use the cross-entropy of labels, or another loss."""
        if function is None:
            self.loss = self.cross_entropy = self.cross_entropy or SoftmaxCrossEntropy(self.logits)
        else:
            self.loss = OtherLoss(self.logits, function)
        self.dlogits = self.loss.dx

    def begin(self, X, draws=None):
        """Take up to n images. Without ``draws``, nothing is random."""
        self.m = len(X)
        np.copyto(self.x[..., : self.m], X.transpose(*range(1, X.ndim), 0))
        self.x[..., self.m :] = 0
        self.use_draws(draws)

    def forward(self, i):
        """Go forward from batch norm layer i - 1, or the first stage, to layer i, and measure the moments of its input.

        Behind the last of these layers, go to the end.
        """
        for stage in self.stages[self.cuts[i] : self.cuts[i + 1]]:
            stage.forward()
        if i < len(self.norms) and self.norms[i].statistics is None:
            self.norms[i].measure()

    def sums(self, y):
        """An array of two, as in `forward_together`."""
        return np.array([self.loss.forward(y), right_answers(self.logits[:, : self.m].T, y)])

    def begin_backward(self, scale, dy=None):
        """Begin with the gradient of the outputs: ``dy`` (m, ...), or else that of the loss, times ``scale``."""
        self.dy = self.dlogits
        self.dy[..., self.m :] = 0
        if dy is not None:
            np.copyto(self.dy[..., : self.m], np.moveaxis(dy, 0, -1))
        elif scale != 1:
            np.multiply(self.dy, self.dy.dtype.type(scale), out=self.dy)

    def backward(self, i, grads, add, ready):
        """Go back to batch norm layer i - 1, and measure its sums; or, if i is 0, to the first stage.

        With ``grads``, the sums of gradients are written there, from the last stage to the first, or added to what is
        there.
        """
        start, stop = self.cuts[i] + (i > 0), self.cuts[i + 1] + 1  # layer i itself goes back now that it has all sums
        for stage, owned in reversed([*zip(self.stages, self.owners, strict=True)][start:stop]):
            stage.backward(self.dy)
            self.dy = stage.dx
            if grads is not None and owned.start < owned.stop:
                stage.store(self.more[owned] if add else grads[owned])
                if add:
                    for total, grad in zip(grads[owned], self.more[owned], strict=True):
                        total += grad
                if ready is not None:
                    ready(owned.start)
            if self.dy is None:
                break
        if i:
            self.norms[i - 1].measure_back(self.dy)
