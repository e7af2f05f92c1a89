"""Whether your own functions still do what they did when a checkpoint was written.

Names say little: two networks of your own are both called "custom". So a checkpoint stores a few numbers that your
functions compute from a fixed input, and a resumed run computes them again and compares. This misses differences that
show only for other inputs, such as a random change that few images get. A function that draws its own random numbers
never gives the same result twice, so it is not compared.
"""

import numpy as np

from ..devices import cpu
from ..layers import Draws
from ..networks import Network, find_loss, init_params, loss_and_grads_as_written
from ..networks.losses import as_targets
from ..parallel import MinibatchQueue

COMPARED = ("network", "schedule", "preprocess", "loss")
TOLERANCE = 1e-4
"""The tolerance, relative to the largest number. It is needed because other machines round differently."""

EXAMPLES, MINIBATCHES, POINTS = 8, 2, 16


def fingerprint_of(settings, X, y, outputs):
    """A dict with a list of numbers for each name in `COMPARED`, or None if there is nothing to compare.

    ``outputs``: how many outputs the network has.

    Settings given by name are not compared. If ``preprocess`` is a function, it is called for the first minibatches of
    the training set X and y, as in training.
    """
    network, schedule, preprocess = settings.network, settings.schedule, settings.preprocess
    batches = settings.batch_size, settings.seed
    own = isinstance(network, Network) and _repeated(lambda: _of_network(network))
    rates = callable(schedule) and _repeated(lambda: [float(schedule(i / POINTS)) for i in range(POINTS)])
    images = callable(preprocess) and _repeated(lambda: _of_preprocess(preprocess, X, y, *batches))
    loss = find_loss(settings.loss)
    losses = loss.is_own and _repeated(lambda: _of_loss(loss, y[:EXAMPLES], outputs))
    return {"network": own or None, "schedule": rates or None, "preprocess": images or None, "loss": losses or None}


def changed_functions(here, saved):
    """The names of the functions that behave differently here than they did when the fingerprint ``saved`` was made."""
    return [name for name in COMPARED if here[name] and saved[name] and not _close(here[name], saved[name])]


def _repeated(compute):
    """The result of ``compute``; None if a second call returns something else, or if a call fails here."""
    try:
        with np.errstate(all="ignore"):
            first, second = compute(), compute()
    except Exception:  # for example a network for GPUs only; training reports a faulty function better
        return None
    return first if np.array_equal(first, second, equal_nan=True) else None


def _of_network(network):
    """The loss, and each gradient's dot product with a random direction, for a few noise images and fixed weights."""
    rng = np.random.default_rng(0)
    X = rng.random((EXAMPLES, *network.input_shape), np.float32)
    params = init_params(0, init="he", network=network)
    loss, grads = loss_and_grads_as_written(X, np.arange(EXAMPLES) % network.classes, params, network, draws=Draws(0))
    return [float(loss), *(float(np.vdot(grad, rng.normal(size=grad.shape))) for grad in grads)]


def _of_loss(loss, y, outputs):
    """The loss, and its gradient's dot product with a random direction, for random outputs and the first targets."""
    rng = np.random.default_rng(0)
    shape = len(y), outputs
    value, grad = loss.with_grad(rng.normal(size=shape), as_targets(y, np.float64))
    return [float(value), float(np.vdot(grad, rng.normal(size=shape)))]


def _of_preprocess(preprocess, X, y, batch_size, seed):
    """For a few examples of each minibatch, the image's dot product with a random direction, and the label."""
    queue, numbers = MinibatchQueue(X, y, [cpu(0)], batch_size, seed, preprocess=preprocess), []
    direction = np.random.default_rng(0).normal(size=X[0].size)
    for _ in range(min(MINIBATCHES, queue.steps)):
        images, labels = queue.next_whole()
        numbers += (images[:EXAMPLES].reshape(-1, X[0].size) @ direction).tolist()
        numbers += labels[:EXAMPLES].ravel().tolist()
    return numbers


def _close(here, saved):
    here, saved = np.asarray(here, float), np.asarray(saved, float)
    most = TOLERANCE * np.abs(np.nan_to_num(saved)).max(initial=0)
    return here.shape == saved.shape and np.allclose(here, saved, rtol=0, atol=most, equal_nan=True)
