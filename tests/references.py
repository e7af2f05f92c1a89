"""Reference answers, written as loops over outputs in float64.

They share no code with the library: every output is computed by itself, as its
definition says, and gradients are added up one output at a time.
"""

import numpy as np


def conv2d(x, weight, bias, stride=1, padding=0):
    x = padded(x, padding)
    N, _, H, W = x.shape
    O, _, kh, kw = weight.shape
    y = np.zeros((N, O, (H - kh) // stride + 1, (W - kw) // stride + 1))
    for n, o, i, j in np.ndindex(y.shape):
        rows, columns = slice(i * stride, i * stride + kh), slice(j * stride, j * stride + kw)
        y[n, o, i, j] = (x[n, :, rows, columns] * weight[o]).sum() + bias[o]
    return y


def conv2d_grad(dy, x, weight, bias=None, stride=1, padding=0):
    x = padded(x, padding)
    _, _, H, W = x.shape
    _, _, kh, kw = weight.shape
    dx, dweight, dbias = np.zeros(x.shape), np.zeros(weight.shape), np.zeros(len(weight))
    for n, o, i, j in np.ndindex(dy.shape):
        g = dy[n, o, i, j]
        if g:
            rows, columns = slice(i * stride, i * stride + kh), slice(j * stride, j * stride + kw)
            dx[n, :, rows, columns] += g * weight[o]
            dweight[o] += g * x[n, :, rows, columns]
            dbias[o] += g
    return dx[:, :, padding : H - padding, padding : W - padding], dweight, dbias


def padded(x, padding):
    """Images with so many rows and columns of zeros on each side."""
    return np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))


def avg_pool2d(x, size=2):
    N, C, H, W = x.shape
    y = np.zeros((N, C, H // size, W // size))
    for n, c, i, j in np.ndindex(y.shape):
        y[n, c, i, j] = x[n, c, i * size : (i + 1) * size, j * size : (j + 1) * size].mean()
    return y


def avg_pool2d_grad(dy, x, size=2):
    dx = np.zeros(x.shape)
    for n, c, i, j in np.ndindex(dy.shape):
        dx[n, c, i * size : (i + 1) * size, j * size : (j + 1) * size] += dy[n, c, i, j] / size**2
    return dx


def max_pool2d(x, size=2):
    N, C, H, W = x.shape
    y = np.zeros((N, C, H // size, W // size))
    for n, c, i, j in np.ndindex(y.shape):
        y[n, c, i, j] = x[n, c, i * size : (i + 1) * size, j * size : (j + 1) * size].max()
    return y


def max_pool2d_grad(dy, x, size=2):
    dx = np.zeros(x.shape)
    for n, c, i, j in np.ndindex(dy.shape):
        square = x[n, c, i * size : (i + 1) * size, j * size : (j + 1) * size]
        row, column = np.unravel_index(square.argmax(), square.shape)  # the first of the largest
        dx[n, c, i * size + row, j * size + column] += dy[n, c, i, j]
    return dx


def dense(x, weight, bias):
    y = np.zeros((len(x), weight.shape[1]))
    for n, o in np.ndindex(y.shape):
        y[n, o] = (x[n] * weight[:, o]).sum() + bias[o]
    return y


def dense_grad(dy, x, weight, bias=None):
    dx, dweight, dbias = np.zeros(x.shape), np.zeros(weight.shape), np.zeros(weight.shape[1])
    for n, o in np.ndindex(dy.shape):
        dx[n] += dy[n, o] * weight[:, o]
        dweight[:, o] += dy[n, o] * x[n]
        dbias[o] += dy[n, o]
    return dx, dweight, dbias


def cross_entropy(logits, y):
    """The summed loss and its gradient, from the definition -log softmax(logits)[y]."""
    loss, dlogits = 0.0, np.zeros(logits.shape)
    for n, label in enumerate(y):
        p = np.exp(logits[n]) / np.exp(logits[n]).sum()
        loss -= np.log(p[label])
        dlogits[n] = p
        dlogits[n, label] -= 1
    return loss, dlogits


def lenet(X, y, params, rounded=lambda x: x, scale=1):
    """Logits, summed loss and gradients of the textbook's LeNet, in float64.

    ``rounded`` is applied to all that products multiply but for the weights, ``scale`` to the loss's gradient.
    """
    X = rounded(X.astype(float))
    W1, b1, W2, b2, W3, b3, W4, b4 = (p.astype(float) for p in params)
    a1 = conv2d(X, W1, b1)
    p1 = rounded(avg_pool2d(np.where(a1 > 0, a1, 0)))
    a2 = conv2d(p1, W2, b2)
    p2 = avg_pool2d(np.where(a2 > 0, a2, 0))
    f = rounded(np.array([image.flatten() for image in p2]).reshape(len(X), 800))
    a3 = dense(f, W3, b3)
    h3 = rounded(np.where(a3 > 0, a3, 0))
    logits = rounded(dense(h3, W4, b4))
    loss, d = cross_entropy(logits, y)
    d, dW4, db4 = dense_grad(rounded(d * scale), h3, W4)
    d, dW3, db3 = dense_grad(np.where(a3 > 0, rounded(d), 0), f, W3)
    d = avg_pool2d_grad(rounded(d).reshape(p2.shape), a2)
    d, dW2, db2 = conv2d_grad(np.where(a2 > 0, d, 0), p1, W2)
    d = avg_pool2d_grad(rounded(d), a1)
    _, dW1, db1 = conv2d_grad(np.where(a1 > 0, d, 0), X, W1)
    return logits, loss, [dW1, db1, dW2, db2, dW3, db3, dW4, db4]


def conv_relu_pool(x, weight, bias, size, max_pool, relu):
    """y, and for each of its elements the bits of the outputs in the square that a gradient passes to."""
    z = conv2d(x.astype(float), weight.astype(float), bias.astype(float))
    N, O, H, W = z.shape
    y = np.zeros((N, O, H // size, W // size))
    mask = np.zeros(y.shape, np.uint16)
    for n, o, i, j in np.ndindex(y.shape):
        square = z[n, o, i * size : (i + 1) * size, j * size : (j + 1) * size].flatten()
        activated = np.where(square > 0, square, 0) if relu else square
        y[n, o, i, j] = activated.max() if max_pool else activated.mean()
        for q in range(size * size):
            chosen = q == square.argmax() if max_pool else True
            if chosen and (square[q] > 0 or not relu):
                mask[n, o, i, j] |= 1 << q
    return y, mask


def unpool(dy, mask, shape, size, max_pool):
    """The gradient of a convolution's outputs (N, O, *shape), from that of the pooled ones and the mask."""
    dz = np.zeros((*dy.shape[:2], *shape))
    for n, o, i, j in np.ndindex(dy.shape):
        for q in range(size * size):
            if mask[n, o, i, j] >> q & 1:
                dz[n, o, i * size + q // size, j * size + q % size] = dy[n, o, i, j] / (1 if max_pool else size**2)
    return dz


def batch_norm(x, weight, bias, epsilon=1e-5):
    """Of each channel's values, one channel after the other."""
    y = np.zeros(x.shape)
    for c in range(x.shape[1]):
        values = x[:, c]
        mean = sum(values.flat) / values.size
        variance = sum((value - mean) ** 2 for value in values.flat) / values.size
        y[:, c] = weight[c] * (values - mean) / np.sqrt(variance + epsilon) + bias[c]
    return y


def central_differences(function, x, step=1e-5):
    """The gradient of a number ``function(x)``, one element of ``x`` at a time."""
    grad = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        grad[i] = (function(up) - function(down)) / (2 * step)
    return grad


def reference_inputs(shapes):
    """X, y and parameters of the stored outputs, from a formula that no generator of random numbers changes."""

    def wave(shape, scale):
        count = np.arange(int(np.prod(shape)), dtype=float)
        return (scale * np.sin(1 + 0.7 * count + 0.01 * (count % 89) ** 2)).reshape(shape)

    params = [wave(shape, 0.3 / len(shape)) for shape in shapes]
    return np.abs(wave((5, 1, 28, 28), 1.0)), np.array([3, 0, 9, 5, 3]), params
