"""Programs: a network of layers as launches of CUDA kernels, with all the arrays they need, for N images.

As in kernels/cpu/program.py, layers that belong together are one stage: bias, ReLU
and pooling are fused to the convolution before them, ReLU to a dense layer, ReLU
and pooling to batch norm.
Nothing is allocated and nothing is waited for once a program is made, so that its
launches can be captured in a CUDA graph.
"""

import contextlib
import functools

import numpy as np

from ...devices import array_module
from ...layers import rounded_to_half, zero_moments
from ...layers.labels import with_right_answers
from ..stages import Stages
from . import launch
from .head import Head, can_be_head
from .run import empty, run
from .stages import PRECISIONS, WinogradConvolution, make_stages, rounds_output


def same(one, other):
    """Whether two plain arrays are the same memory in the same order."""
    return (one.data.ptr, one.shape, one.strides) == (other.data.ptr, other.shape, other.strides)


class Program(Stages):
    """The stages of a network for N images of ``shape`` (C, H, W), on the current device.

    ``precision`` is one of `PRECISIONS`. With ``branches``, a `Branches`, results that nothing in the program waits for
    are computed beside the main stream; the caller of `backward` then joins the branches. Without ``with_loss``,
    forward ends with the logits, and the caller writes ``dlogits`` before `backward`. ``input_grad``: whether the
    gradient of the images is wanted. ``x``, ``labels``, ``scale``: the caller's arrays, to be used in place of new
    ones.
    """

    def __init__(
        self,
        network,
        params,
        shape,
        N,
        precision="float32",
        branches=None,
        with_loss=True,
        input_grad=False,
        x=None,
        labels=None,
        scale=None,
    ):
        import cupy

        self.N = N
        self.x = empty((N, *shape)) if x is None else x
        self.labels = empty(N, np.int32) if labels is None else labels
        self.count = cupy.full(1, N, np.int32)  # how many of the N are examples
        self.scale = cupy.ones(1, np.float32) if scale is None else scale  # of all gradients
        self.step = cupy.zeros(1, np.int32)  # how often the program went forward
        self.kind = PRECISIONS[precision]
        self.half_x = rounds_output(self.kind, network)  # x must be rounded where it is written
        make = functools.partial(make_stages, kind=self.kind, count=self.count)
        on_host = [np.zeros(param.shape, np.float32) for param in params]  # for the layers' shapes no GPU is needed
        super().__init__(network, on_host, self.x, shape, make, input_grad)
        self.logits = self.stages[-1].y if self.stages else self.x
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
        self.with_loss, self.has_head = with_loss, with_loss and bool(self.stages) and can_be_head(self.stages[-1])
        if self.has_head:
            arguments = self.labels, self.count, self.scale, self.losses, self.hits, self.dlogits
            self.stages[-1] = Head(self.stages[-1], *arguments, self.kind)

    def sums(self, y, loss=None, scale=1):
        """The loss, and the number of right answers, of what went forward last: a new array of two.

        ``loss``: as in `in_parts`, in place of the program's own; its gradient, times ``scale``, goes to ``dlogits``.
        """
        if loss:
            value, dlogits = loss(self.logits, y)
            self.dlogits[...] = dlogits * dlogits.dtype.type(scale)
            return with_right_answers(value, self.logits, y)
        sums = empty(2)
        sums[:1], sums[1:] = self.loss, self.correct
        return sums

    @property
    def dx(self):
        """The gradient of x, after `backward`."""
        return self.stages[0].dx if self.stages else self.dlogits

    def new_moments(self):
        """New arrays for the moments of batch norm layers."""
        return zero_moments([norm.x.shape[1] for norm in self.norms], array_module(self.x))

    def forward(self, params, X=None, y=None, draws=None):
        """Logits, the summed loss, the number of right answers, all on the device.

        N images and labels are copied to where the launches read them, unless they are there already. Without
        ``draws``, nothing is random.
        """
        self.use_draws(draws)
        if X is not None and not same(X, self.x):
            self.x[...] = rounded_to_half(X) if self.half_x else X
        if y is not None and self.with_loss and not same(y, self.labels):
            self.labels[...] = y
        for stage, owned in zip(self.stages, self.owners, strict=True):
            if isinstance(stage, WinogradConvolution):
                stage.prepare(*params[owned])
        for stage, owned in zip(self.stages, self.owners, strict=True):
            if stage in self.norms and stage.statistics is None:
                stage.measure()
            stage.forward(*params[owned])
        if not self.with_loss:
            return
        N, classes = self.logits.shape
        if not self.has_head:
            arguments = self.logits, self.labels, self.count, self.scale, self.dlogits, self.losses, self.hits
            how = launch.rounding(launch.softmax_cross_entropy(classes, N), out=self.kind == "float16")
            run(how, *arguments, np.int32(N))
        arguments = self.losses, self.hits, self.loss, self.correct, self.epoch_loss, self.epoch_correct, self.step
        with self.bookkeeping:
            run(launch.softmax_cross_entropy_sum(classes, N), *arguments, np.int32(N))

    def backward(self, params, grads, ready=None):
        """The gradients of what went forward last.

        ``ready`` is for programs without branches.
        """
        dy = self.dlogits
        for stage, owned in zip(reversed(self.stages), reversed(self.owners), strict=True):
            if stage in self.norms:
                stage.measure_back(dy, grads[owned])
            stage.backward(dy, params[owned], grads[owned])
            dy = stage.dx
            if ready is not None:
                ready(owned.start)
            if dy is None:
                break
