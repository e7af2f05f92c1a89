"""Some of a network's layers forward, and backward later: what their program holds in between is a plan's cache.

As kernels/cpu/passes.py, but all images go through one program.
"""

from ..stages import images_last, timed
from .program import Program


class Pass:
    """Layers of a network for N images of ``shape``: arguments and methods are those of the CPU's `Pass`.

    It has no use for ``papers``: each program has its own arrays. ``how``: other arguments of the `Program`.
    """

    def __init__(self, layers, params, shape, dtype, N, input_grad, with_loss, loss, papers, **how):
        self.shape, self.input_grad, self.with_loss, self.loss = (N, *shape), input_grad, with_loss, loss
        how |= {"with_loss": with_loss and not loss, "input_grad": input_grad}
        self.program = Program(layers, params, shape, N, **how)
        self.sync = self.program.own_sync_statistics()
        self.program.use_statistics(self.sync)

    def forward(self, X, params, y=None, draws=None):
        """As of the CPU's `Pass`."""
        program = self.program
        yield from timed("forward", program.forward(params, X, y, draws))
        return program.sums(y, self.loss) if self.with_loss else images_last(program.logits)

    def backward(self, params, grads, dy=None, scale=1):
        """As of the CPU's `Pass`."""
        if dy is not None:
            self.program.dlogits[...] = dy
        elif scale != 1:  # known only now, and a power of two, so that it may come after the loss
            self.program.dlogits *= self.program.dlogits.dtype.type(scale)
        yield from timed("backward", self.program.backward(params, grads))
        return images_last(self.program.dx) if self.input_grad else None
