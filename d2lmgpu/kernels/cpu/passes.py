"""Run some of a network's layers forward, and backward later, as plans do.

    forward      part 0 of the images through program 0, part 1 through program 1 ...
    ...          (anything else, passes of other images among it)
    backward     part 0 back through program 0, part 1 through program 1 ...

In between, the programs hold what backward needs, so these programs belong to a device's memory. Where backward follows
forward at once, `loss_and_grads` in program.py does both for a part of the images at a time, in a borrowed program.
"""

import numpy as np

from .program import Program, backward_together, counts_of_parts, forward_together, rounds_of
from .scratch import scratch, shared_scratch


class Pass:
    """Layers of a network for N images of ``shape``, as many at a time as stay in a core's cache.

    ``input_grad``: whether the gradient of the images is wanted. ``with_loss``: whether the layers are the network's
    last ones; ``loss``: as in `loss_and_grads`. ``lists``: the scratch arrays of passes of these layers on this device,
    a dict of lists by the number of images, to which new ones are added. ``moments``: those of its batch norm layers,
    after `forward`.
    """

    def __init__(self, layers, params, shape, dtype, N, input_grad, with_loss, loss, lists):
        sizes = counts_of_parts(layers, shape, np.dtype(dtype), N)
        self.shape, self.input_grad, self.with_loss, self.programs = (N, *shape), input_grad, with_loss, []
        for size in sizes:
            with shared_scratch(lists.setdefault(size, [])):
                program = Program(layers, params, shape, dtype, size, input_grad)
                if with_loss:
                    program.use_loss(loss)
                else:
                    program.dlogits = scratch(program.logits.shape, dtype)
                # gradients to be added; asked for last, so that other passes do without
                program.more = [scratch(param.shape, dtype) for param in params] if len(sizes) > 1 else None
            self.programs.append(program)
        self.moments = self.programs[0].new_moments()
        self.rounds = rounds_of(self.programs, N, self.moments)  # parts wait for each other at batch norm

    def forward(self, X, params, y=None, draws=None):
        """The outputs (..., N) for ``X`` (N, ...), a new array.

        With targets ``y`` (N, ...) the result is an array of two, the loss and how many outputs are right. ``draws``:
        as in `loss_and_grads`.
        """
        Y = None if self.with_loss else np.empty((*self.programs[0].logits.shape[:-1], len(X)), X.dtype)
        sums = 0
        for assigned in self.rounds:
            for program, _ in assigned:
                program.load(params)
            sums = sums + forward_together(assigned, X, y, self.moments, draws)
            for program, part in assigned:
                if not self.with_loss:
                    Y[..., part] = program.logits[..., : program.m]
                program.unload()
        return sums.astype(X.dtype) if self.with_loss else Y

    def backward(self, params, grads, dy=None, scale=1):
        """Write the parameters' gradients to ``grads``; return the gradient of X (..., N), new, if it is wanted.

        ``dy`` (N, ...): the gradient of the outputs, unless the layers are the last ones; then the gradient of the
        loss, multiplied by ``scale``, is used.
        """
        dx = np.empty((*self.shape[1:], self.shape[0]), self.programs[0].x.dtype) if self.input_grad else None
        for assigned in reversed(self.rounds):  # the last one is still in the cache
            for program, _ in assigned:
                program.load(params)
            add = assigned is not self.rounds[-1]
            backward_together(assigned, self.moments, scale, grads, add=add, dy=dy, dx=dx)
            for program, _ in assigned:
                program.unload()
        return dx
