"""The head of a network: its last dense layer together with softmax and cross-entropy, as one launch of head.cu."""

import numpy as np

from .launch import Launch, ceil_div, evenly, macros, rounding
from .run import run
from .stages import Dense

MOST_CLASSES = 32
"""The most classes: a thread has all logits of an image in its registers."""

ROWS = 8


def head(D, O, N, input_grad=True, kind=None):
    """x, weight, bias, labels → logits, losses, hits, dlogits, dx. ``kind`` is a value of `stages.PRECISIONS`.

    In "float16", logits and dx are rounded, too. Arguments: x, weight, bias, labels, count, scale, logits, losses,
    hits, dlogits, dx, N. Without ``input_grad``, dx is not written. This is for at most `MOST_CLASSES` outputs; see
    `can_be_head`.
    """
    each = evenly(ceil_div(D, 32), min(8, 96 // O))  # inputs of a thread at a time: more would need too many registers
    options = macros(D=D, O=O, INPUT_GRAD=input_grad, ROWS=ROWS, CHUNK=32 * each)
    options += macros(HALF_FACTORS=True) if kind else ()
    how = Launch("head.cu", "head", options, (ceil_div(N, ROWS),), (32 * ROWS,))
    return rounding(how, out=kind is not None)


def can_be_head(stage):
    """Whether a program's last stage and the loss can be a `Head`."""
    return isinstance(stage, Dense) and not stage.relu and stage.y.shape[1] <= MOST_CLASSES


class Head:
    """A network's last `Dense` stage and the loss: forward also computes what backward begins with, and dx."""

    def __init__(self, dense, labels, count, scale, losses, hits, dlogits, kind):
        self.x, self.y, self.dx = dense.x, dense.y, dense.dx
        self.dense, self.N = dense, dense.N
        (N, D), O = self.x.shape, self.y.shape[1]
        self.launch = head(D, O, N, self.dx is not None, kind)
        dx = dlogits if self.dx is None else self.dx  # any array will do: then it is not written
        self.arguments = labels, count, scale, self.y, losses, hits, dlogits, dx, np.int32(N)

    def forward(self, weight, bias):
        run(self.launch, self.x, weight, bias, *self.arguments)

    def backward(self, dy, params, grads):
        self.dense.weight_grad(dy, grads)
