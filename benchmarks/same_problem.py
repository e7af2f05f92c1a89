"""What same_in_pytorch.py and same_in_jax.py compute: LeNet's gradients, of 64 images of Fashion-MNIST.

Biases start at 0.01. At exactly 0, a black background would be on ReLU's corner, where rounding decides the slope.
"""

import numpy as np

import d2lmgpu as d2l

X, y, *_ = d2l.load_fashion_mnist()
X, y = d2l.to_float(X[:64]), y[:64]
params = [p if p.ndim > 1 else np.full_like(p, 0.01) for p in d2l.init_params(init="he")]
_, ours = d2l.loss_and_grads(X, y, params)  # of all 64 images, on one device


def furthest(theirs, ours):
    """The largest difference between two lists of gradients, relative to the largest number in each array."""
    pairs = zip(map(np.asarray, theirs), map(np.asarray, ours), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
