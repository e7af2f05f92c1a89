"""Plans: a network of layers as launches of CUDA kernels, with all the arrays they need, for N images.

As in kernels/cpu/plan.py, layers that belong together are one stage: bias, ReLU
and pooling are fused to the convolution before them, ReLU to a dense layer.
Nothing is allocated and nothing is waited for once a plan is made, so that its
launches can be captured in a CUDA graph.
"""

import functools
import threading

import numpy as np

from ...layers import avg_pool2d, conv2d, dense, flatten, max_pool2d, relu
from ...timing import span
from . import convolution, launch, tensor_cores
from .source import read

KEPT = 4
"""Plans that a device keeps: one for each network and number of images."""

PRECISIONS = {"float32": None, "tf32": "tf32", "mixed": "float16"}
"""What the factors of matrix products and convolutions are rounded to. Sums and everything else are float32."""

LARGEST_SQUARE = 4
"""Side of the largest squares that the kernels pool."""

POOLS = {avg_pool2d: False, max_pool2d: True}
"""Whether it takes the maximum."""

_thread = threading.local()


def loss_and_grads(X, y, params, network, grads, ready=None):
    """The cross-entropy summed over examples, a new 0-d array; its gradients are written to ``grads``.

    ``X`` (N, C, H, W), ``params`` and ``grads`` are float32 CuPy arrays of this
    device. ``ready(i)`` is called when all work that gives the gradients from
    number ``i`` on is in the stream.
    """
    if len(X) == 0:
        for grad in grads:
            grad[...] = 0
        if ready is not None:
            ready(0)
        return X.sum()
    plan = plan_for(network, params, X)
    with span("forward"):
        plan.take(X, y)
        plan.forward(params)
    with span("backward"):
        plan.backward(params, grads, ready)
    return plan.loss.copy().reshape(())


def count_correct(X, y, params, network):
    """How many of the images have their label as the largest logit, a new 0-d array."""
    if len(X) == 0:
        return X.sum().astype(np.int32)
    plan = plan_for(network, params, X)
    plan.take(X, y)
    plan.forward(params)
    return plan.correct.copy().reshape(())


def plan_for(network, params, X):
    """This device's plan for these sizes, made if there is none. Raises what the layers raise if nothing fits."""
    key = (_card(), tuple(network), X.shape, tuple(param.shape for param in params))
    plans = _thread.__dict__.setdefault("plans", {})
    plan = plans.pop(key, None) or Plan(network, params, X.shape[1:], len(X))
    plans[key] = plan  # last in order: used last
    if len(plans) > KEPT:
        del plans[next(iter(plans))]
    return plan


class Plan:
    """The stages of a network for N images of ``shape`` (C, H, W), on the current device.

    ``precision`` is one of `PRECISIONS`.
    """

    def __init__(self, network, params, shape, N, precision="float32"):
        import cupy

        shapes = output_shapes(network, params, shape)
        self.N = N
        self.x = cupy.empty((N, *shape), np.float32)
        self.labels = cupy.empty(N, np.int32)
        self.count = cupy.full(1, N, np.int32)  # how many of the N are examples
        self.stages, self.owners = [], []
        x, i, first = self.x, 0, 0
        while i < len(network):
            stage, taken = make_stage(network[i:], x, shapes[i:], i > 0, _Launches(PRECISIONS[precision]))
            count = sum(len(layer.shapes) for layer in network[i : i + taken])
            self.stages.append(stage)
            self.owners.append(slice(first, first + count))
            x, i, first = stage.y, i + taken, first + count
        self.logits = x
        self.dlogits = cupy.empty_like(x)
        self.losses, self.hits = cupy.empty(N, np.float32), cupy.empty(N, np.int32)
        self.loss, self.correct = cupy.zeros(1, np.float32), cupy.zeros(1, np.int32)
        self.epoch_loss, self.epoch_correct = cupy.zeros(1, np.float32), cupy.zeros(1, np.int32)

    @property
    def can_be_captured(self):
        """Whether all stages are kernels of ours: others may allocate or call cuBLAS."""
        return not any(isinstance(stage, AsWritten) for stage in self.stages)

    def take(self, X, y):
        """Copy N images and labels to where the launches read them."""
        self.x[...] = X
        self.labels[...] = y

    def forward(self, params):
        """Logits, the summed loss, and the number of right answers."""
        for stage, owned in zip(self.stages, self.owners, strict=True):
            stage.forward(*params[owned])
        classes = self.logits.shape[1]
        arguments = self.logits, self.labels, self.count, self.dlogits, self.losses, self.hits
        run(launch.softmax_cross_entropy(classes, self.N), *arguments, np.int32(self.N))
        arguments = self.losses, self.hits, self.loss, self.correct, self.epoch_loss, self.epoch_correct
        run(launch.softmax_cross_entropy_sum(classes, self.N), *arguments, np.int32(self.N))

    def backward(self, params, grads, ready=None):
        """The gradients of what went forward last."""
        dy = self.dlogits
        for stage, owned in zip(reversed(self.stages), reversed(self.owners), strict=True):
            stage.backward(dy, params[owned], grads[owned])
            dy = stage.dx
            if ready is not None:
                ready(owned.start)


class Convolution:
    """Convolution, bias, and the ReLU and pooling after it: x (N, C, H, W) → y (N, O, PH, PW)."""

    def __init__(self, x, kernel_shape, S, max_pool, relu, input_grad, launches):
        import cupy

        N, C, H, W = x.shape
        O, _, KH, KW = kernel_shape
        conv = convolution.Convolution(C, H, W, O, KH, KW, S, max_pool, relu)
        self.x, self.N = x, np.int32(N)
        self.y = cupy.empty((N, O, conv.PH, conv.PW), np.float32)
        self.mask = cupy.empty(self.y.shape, np.uint16)
        self.dx = cupy.empty_like(x) if input_grad else None
        self.launch_forward = launches.conv_forward(conv, N)
        self.launch_input_grad = launches.conv_input_grad(conv, N)
        multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]
        self.launch_weight_grad = launches.conv_weight_grad(conv, N, multiprocessors=multiprocessors)
        self.launch_reduce = convolution.conv_weight_grad_reduce(conv, self.launch_weight_grad)
        size = self.launch_weight_grad.workspace
        self.workspace = cupy.empty(size, np.float32) if size else None
        self.rows = np.int32(size // (O * C * KH * KW))

    def forward(self, weight, bias):
        run(self.launch_forward, self.x, weight, bias, self.y, self.mask, self.N)

    def backward(self, dy, params, grads):
        """``dx``, if it is wanted, and the gradients of weight and bias."""
        if self.workspace is None:
            run(self.launch_weight_grad, self.x, dy, self.mask, *grads, self.N)
        else:
            run(self.launch_weight_grad, self.x, dy, self.mask, self.workspace, self.N)
            run(self.launch_reduce, self.workspace, dy, self.mask, *grads, self.rows, self.N)
        if self.dx is not None:
            run(self.launch_input_grad, dy, self.mask, params[0], self.dx, self.N)


class Dense:
    """x (N, D) → y (N, O), with ReLU if ``relu``."""

    def __init__(self, x, weight_shape, relu, input_grad, launches):
        import cupy

        D, O = weight_shape
        N = len(x)
        self.x, self.N = x, np.int32(N)
        self.y = cupy.empty((N, O), np.float32)
        self.dx = cupy.empty_like(x) if input_grad else None
        self.launch_forward = launches.dense_forward(D, O, N, relu)
        self.launch_input_grad = launches.dense_input_grad(D, O, N, relu)
        self.launch_weight_grad = launches.dense_weight_grad(D, O, N, relu)

    def forward(self, weight, bias):
        run(self.launch_forward, self.x, weight, bias, self.y, self.N)

    def backward(self, dy, params, grads):
        run(self.launch_weight_grad, self.x, dy, self.y, *grads, self.N)
        if self.dx is not None:
            run(self.launch_input_grad, dy, self.y, params[0], self.dx, self.N)


class Flatten:
    """x (N, C, H, W) → y (N, C·H·W), the same memory."""

    def __init__(self, x):
        self.x, self.y = x, x.reshape(len(x), -1)

    def forward(self):
        pass

    def backward(self, dy, params, grads):
        self.dx = dy.reshape(self.x.shape)


class Rectifier:
    """ReLU where no convolution or dense layer comes before."""

    def __init__(self, x):
        import cupy

        self.x, self.y, self.dx = x, cupy.empty_like(x), cupy.empty_like(x)

    def forward(self):
        run(launch.relu(self.x.size), self.x, self.y, np.int32(self.x.size))

    def backward(self, dy, params, grads):
        run(launch.relu_grad(self.x.size), dy, self.y, self.dx, np.int32(self.x.size))


class Pooling:
    """Pooling where no convolution comes before: x (N, C, H, W) → y (N, C, H // S, W // S)."""

    def __init__(self, x, S, max_pool):
        import cupy

        N, C, H, W = x.shape
        self.x, self.dx, self.planes = x, cupy.empty_like(x), np.int32(N * C)
        self.y = cupy.empty((N, C, H // S, W // S), np.float32)
        self.mask = cupy.empty(self.y.shape, np.uint16)
        self.launch = launch.pool(H, W, S, max_pool, N * C)
        self.launch_grad = launch.pool_grad(H, W, S, max_pool, N * C)

    def forward(self):
        run(self.launch, self.x, self.y, self.mask, self.planes)

    def backward(self, dy, params, grads):
        run(self.launch_grad, dy, self.mask, self.dx, self.planes)


class AsWritten:
    """A layer without a kernel: its own two functions."""

    def __init__(self, x, layer, y_shape, input_grad):
        import cupy

        self.layer, self.x, self.input_grad = layer, x, input_grad
        self.y = cupy.empty((len(x), *y_shape), np.float32)

    def forward(self, *params):
        self.y[...], self.cache = self.layer.forward(self.x, *params)

    def backward(self, dy, params, grads):
        import cupy

        if self.layer.shapes:
            dx, *values = self.layer.backward(dy, self.cache, input_grad=self.input_grad)
            for grad, value in zip(grads, values, strict=True):
                grad[...] = value
        else:
            dx = self.layer.backward(dy, self.cache)
        self.dx = None if dx is None else cupy.ascontiguousarray(dx)


def run(how, *arguments):
    """Launch a kernel on the current stream, compiled when it is first used on this device."""
    kernels = _thread.__dict__.setdefault("kernels", {})
    key = (_card(), how.file, how.options, how.name)
    if key not in kernels:
        kernels[key] = _module(how.file, how.options).get_function(how.name)
    kernels[key](how.grid, how.block, arguments)


def _module(file, options):
    import cupy

    modules = _thread.__dict__.setdefault("modules", {})
    key = (_card(), file, options)
    if key not in modules:
        modules[key] = cupy.RawModule(code=read(file), options=("-std=c++17", *options))
    return modules[key]


def _card():
    import cupy

    return cupy.cuda.runtime.getDevice()


def output_shapes(network, params, shape):
    """The shape of each layer's output for one image, found by sending one through the layers."""
    import cupy

    x, rest = cupy.zeros((1, *shape), np.float32), iter(params)
    shapes = []
    for layer in network:
        x, _ = layer.forward(x, *(next(rest) for _ in layer.shapes))
        shapes.append(x.shape[1:])
    return shapes


def make_stage(layers, x, shapes, input_grad, launches):
    """The stage that does the first of ``layers``, and those after it that belong to it: (stage, how many)."""
    first, rest = layers[0], layers[1:]
    function, options = _function(first)
    rectified = bool(rest) and _function(rest[0])[0] is relu
    if function is conv2d:
        pool, pool_options = _function(rest[rectified]) if len(rest) > rectified else (None, {})
        S = pool_options.get("size", 2)
        pooled = pool in POOLS and S <= LARGEST_SQUARE
        stage = Convolution(
            x, first.shapes[0], S if pooled else 1, pooled and POOLS[pool], rectified, input_grad, launches
        )
        return stage, 1 + rectified + pooled
    if function is dense:
        return Dense(x, first.shapes[0], rectified, input_grad, launches), 1 + rectified
    if function is flatten:
        return Flatten(x), 1
    if function is relu:
        return Rectifier(x), 1
    if function in POOLS and options.get("size", 2) <= LARGEST_SQUARE:
        return Pooling(x, options.get("size", 2), POOLS[function]), 1
    return AsWritten(x, first, shapes[0], input_grad), 1


class _Launches:
    """The launch functions of products, in float32 or on tensor cores with factors of ``kind``."""

    def __init__(self, kind):
        self._kind = kind

    def __getattr__(self, name):
        if self._kind is None:
            return getattr(convolution if name.startswith("conv") else launch, name)
        return functools.partial(getattr(tensor_cores, name), self._kind)


def _function(layer):
    """The layer's forward function and its options, if it is a `functools.partial`."""
    if isinstance(layer.forward, functools.partial):
        return layer.forward.func, layer.forward.keywords
    return layer.forward, {}
