"""Short runs of `train`, as the tests of several rooms need them."""

import numpy as np

import d2lmgpu as d2l


def quick(devices, data, **settings):
    """A run of two epochs, without a progress bar."""
    settings = {"batch_size": 64, "lr": 0.1, "num_epochs": 2, "init": "he", "progress": False, **settings}
    return d2l.train(devices, data=data, **settings)


def cpus(k, first=0):
    return [d2l.cpu(first + i) for i in range(k)]


def some(data, n, tested):
    """The first n training examples, and so many of the test set."""
    X, y, X_test, y_test = data
    return X[:n], y[:n], X_test[:tested], y_test[:tested]


def random_data(network, n, tested):
    """A training and a test set of random images and labels."""
    rng = np.random.default_rng(6)
    parts = [
        (rng.integers(1, 256, (m, *network.input_shape)).astype(np.uint8), rng.integers(0, network.classes, m))
        for m in (n, tested)
    ]
    return *parts[0], *parts[1]


class StopAfter(d2l.Callback):
    """Ends training after so many steps."""

    def __init__(self, steps):
        self.left = steps

    def on_step(self, epoch, step, loss):
        self.left -= 1
        return self.left == 0
