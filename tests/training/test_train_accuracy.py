"""How many training examples were right when their step computed them, as a history has it.

That steps count them, test_equals_one_device.py says.
"""

import numpy as np
import pytest
from one_device import PLAIN
from training_runs import cpus, quick, random_data

import d2lmgpu as d2l
from d2lmgpu.networks import NETWORKS, init_params, logits_as_written


def count(X, y, params, network):
    """By the layers as they are written, in float64."""
    scores = logits_as_written(X.astype(float), [param.astype(float) for param in params], network)
    return int((np.argmax(scores, axis=1) == y).sum())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("sums, network", [("float", "lenet"), ("float", "lenet-bn"), ("exact", "lenet")])
def test_only_rows_that_are_not_finite_are_wrong(make_devices, sums, network):
    """In steps, `evaluate` and `predict`, on any number of devices; all labels are 0, the place of the first NaN."""
    X = np.random.default_rng(12).random((96, 1, 28, 28), np.float32)
    params, y, made = init_params(1, init="he", network=NETWORKS[network]), np.zeros(len(X), int), NETWORKS[network]
    statistics = [np.full(C, fill, np.float32) for C in d2l.networks.channels(made) for fill in (0, 1)]
    logits = logits_as_written(X, params, made, statistics)
    params[-1][0] += np.median(logits[:, 1:].max(axis=1) - logits[:, 0])  # now half of the images are taken for 0
    right = logits_as_written(X, params, made, statistics).argmax(axis=1) == 0
    X[::5, 0, 3, 4] = np.nan
    for k in (1, 3):
        devices = make_devices(k)
        found = d2l.evaluate(params, X, y, devices, made, statistics, sums=sums)
        assert found == pytest.approx(np.delete(right, np.s_[::5]).sum() / len(X)) and 0 < found < right.mean()
        probabilities = d2l.predict(params, X, devices, made, statistics)
        assert np.isnan(probabilities[::5]).all() and np.isfinite(np.delete(probabilities, np.s_[::5], 0)).all()


@pytest.mark.parametrize("settings", [{}, {"prefetch": False}, {"drop_last": True}, {"loads": [2, 0, 1]}])
def test_an_epoch_of_steps(settings):
    """As above, on virtual devices; what is left out of an epoch is not counted."""
    data = random_data(PLAIN, 60, 11)
    order = d2l.data.minibatches.epoch_order(60, 0, 0)[: 50 if "drop_last" in settings else 60]
    history, _ = quick(cpus(3), data, num_epochs=1, batch_size=25, lr=1e-30, network=PLAIN, **settings)
    expected = count(data[0][order] / 255, data[1][order], init_params(0, init="he", network=PLAIN), PLAIN)
    assert history.train_accuracy == [expected / len(order)]
