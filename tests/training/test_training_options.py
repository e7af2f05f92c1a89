"""What `train` offers beside the textbook's run: loads, scaling, optimisers, networks, and runs that diverge."""

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN, assert_close
from runs import DATA, PLAIN, brief, cpus

import d2lmgpu as d2l
from d2lmgpu.networks import LENET
from d2lmgpu.training import why_diverged
from d2lmgpu.training.checkpoints import CheckpointError
from d2lmgpu.training.history import UNLEARNED_EPOCHS


@LONG_ON_STANDIN
def test_loads_equal_an_even_split(make_devices):
    even, params = brief(make_devices(3), network=PLAIN)
    uneven, others = brief(make_devices(3), network=PLAIN, loads=[1, 0, 0.5])
    assert uneven.loads == [1, 0, 0.5] and even.loads is None
    assert uneven.train_loss == pytest.approx(even.train_loss, rel=1e-4)
    for param, other in zip(params, others, strict=True):
        assert_close(param, other, 1e-4)  # after twelve steps


def with_numbers(X, number, count):
    X = d2l.to_float(X)
    X[: 2 * count : 2, 0, 3, 4] = number
    return X


X, Y, X_TEST, Y_TEST = DATA
EYE = np.eye(4, dtype=np.float32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "part, other, settings, said",  # what replaces a part of the data
    [
        (0, X.astype(np.float32), {"lr": 10}, "X_train the network sees numbers from 0 to 219;"),
        (0, X // 200, {"num_epochs": 3}, "X_train the network sees numbers from 0 to 0.00392;"),
        (0, X * 0, {"num_epochs": 3, "init": "normal"}, "X_train the network sees numbers from 0 to 0;"),
        (0, with_numbers(X, np.nan, 3), {}, "X_train has numbers that are not finite in 3 of 60"),
        (2, with_numbers(X_TEST, -np.inf, 2), {"lr": 50}, "X_test has numbers that are not finite in 2 of"),
        (0, with_numbers(X, 1e5, 60), {"precision": "mixed"}, "X_train the network sees"),
        (1, 300 * EYE[Y], {"loss": "squared_error", "lr": 1000}, "in y_train the"),
        (1, Y, {"lr": 50}, "; try a smaller learning rate, or a warm-up"),
    ],
    ids=["0 to 255", "uint8 again", "black", "NaN", "inf", "too much", "targets", "nothing odd"],
)
def test_a_run_that_diverges_looks_at_its_data(part, other, settings, said):
    data = [*DATA[:part], other, *DATA[part + 1 :]]
    history, _ = brief(2, data, network=PLAIN, **settings)
    assert said in history.diverged and ("look at the data first" in history.diverged) == (other is not Y)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_that_was_given_up_does_not_go_on(tmp_path):
    """Not to more epochs, and not to those that were asked for, with any learning rate; its checkpoint stays."""
    file = tmp_path / "file"
    history, _ = brief(cpus(1), network=PLAIN, lr=50, checkpoint=file)
    assert history.diverged.startswith("diverged in epoch 1: ")
    before = file.read_bytes()
    message = "resume: the run was given up: diverged in epoch 1: .*; try a smaller .*; start again without resume$"
    for num_epochs, lr in ((1, 50), (2, 50), (3, 0.1)):
        with pytest.raises(CheckpointError, match=message):
            brief(cpus(1), network=PLAIN, lr=lr, num_epochs=num_epochs, checkpoint=file, resume=file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "losses, expected",
    [
        ([2.302, 1.5], None),  # the textbook's plateau
        ([1.5, 2.0, 2.302], None),  # it had learned
        ([2.42], None),  # a rough start after which it learns
        ([9.9], None),  # of a single step, say, with initial weights that are sure of what is wrong
        ([9.9, 9.9], "diverged in epoch 2: the training loss is 9.9"),
        ([12.0], "diverged in epoch 1: the training loss is 12"),
        ([0.5, 4.5], "diverged in epoch 2: the training loss is 4.5, where guessing gives 2.3"),
        ([float("nan")], "diverged in epoch 1: the training loss is nan"),
        ([0.5, *[2.305] * UNLEARNED_EPOCHS], "nothing was learned in 3 epochs: the training loss is 2.31"),
    ],
)
def test_what_divergence_is(losses, expected):
    said = why_diverged(losses, LENET)
    assert said is None if expected is None else said.startswith(expected)
