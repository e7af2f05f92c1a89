"""What programs for the CPU and for GPUs share: a network in stages, and layers as they are written."""

from ..devices import array_module
from ..layers import zero_moments
from ..layers.functions import check_grads, output_shapes


class Stages:
    """A network's ``stages``, and their ``owners``: for each stage, the slice of the parameters that belong to it.

    ``x`` is the first stage's input, for images of ``shape`` (C, H, W). ``input_grad``: whether the gradient of ``x``
    is wanted, because the network is a part of a larger one, with parameters before it. Raises ValueError, or what the
    layers raise, if the sizes do not fit together.

    ``make_stages(layers, x, shapes, input_grad)`` returns a list of stages that do one or more of the first ``layers``,
    and how many layers that is; the last of these stages has their parameters. ``shapes``: of each layer's output, for
    one image. Here ``input_grad`` says whether anything before these layers needs the gradient of their input ``x``.
    """

    def __init__(self, network, params, x, shape, make_stages, input_grad=False):
        if [param.shape for param in params] != [shape for layer in network for shape in layer.shapes]:
            raise ValueError(f"parameters of shapes {[param.shape for param in params]} are not those of the network")
        shapes = output_shapes(network, shape, x.dtype)
        for layer, (C, *_) in zip(network, shapes, strict=True):
            if layer.channels not in (0, C):  # arrays would be broadcast: a kernel reads whatever lies there
                raise ValueError(f"batch norm of {layer.channels} channels cannot take images of {C}")
        self.x, self.stages, self.owners = x, [], []
        i = first = 0
        while i < len(network):
            is_wanted = input_grad or any(layer.shapes for layer in network[:i])
            stages, taken = make_stages(network[i:], x, shapes[i:], is_wanted)
            count = sum(len(layer.shapes) for layer in network[i : i + taken])
            self.stages += stages
            self.owners += [slice(first, first)] * (len(stages) - 1) + [slice(first, first + count)]
            x, i, first = stages[-1].y, i + taken, first + count
        self.norms = [stage for stage in self.stages if hasattr(stage, "statistics")]
        self.random = [stage for stage in self.stages if isinstance(stage, ReferenceLayer) and stage.layer.random]

    def new_moments(self):
        """New arrays for the moments of batch norm layers."""
        return zero_moments([norm.channels for norm in self.norms], array_module(self.x))

    def use_statistics(self, moments=(), statistics=()):
        """Give each batch norm layer an array for its ``moments``, or its mean and variance, from one list."""
        moments = moments or [None] * len(self.norms)
        statistics = list(zip(statistics[::2], statistics[1::2], strict=True)) or [None] * len(self.norms)
        for norm, whole, fixed in zip(self.norms, moments, statistics, strict=True):
            norm.whole, norm.statistics = whole, fixed

    def use_draws(self, draws):
        """Set what random layers draw from; with None, nothing is random."""
        for number, stage in enumerate(self.random):
            stage.draws = draws and draws._replace(layer=draws.layer + number)


class ReferenceLayer:
    """A layer without a fast implementation: its own two functions do the work.

    ``draws``: what a random layer draws from in training; otherwise None.
    """

    draws = None

    def __init__(self, layer, input_grad):
        self.layer, self.input_grad = layer, input_grad

    def compute(self, x, params):
        """Return y."""
        options = {} if self.draws is None else {"draws": self.draws}
        self.shapes = [param.shape for param in params]
        y, self.cache = self.layer.forward(x, *params, **options)
        return y

    def compute_back(self, dy):
        """Return dx, and a list of the parameters' gradients."""
        if not self.layer.shapes:
            return self.layer.backward(dy, self.cache), []
        dx, *grads = self.layer.backward(dy, self.cache, input_grad=self.input_grad)
        check_grads(grads, self.shapes)
        return dx, grads
