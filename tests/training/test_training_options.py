"""What `train` offers beside the textbook's run: loads, scaling, optimisers, networks, and runs that diverge."""

import pytest
from conftest import LONG_ON_STANDIN, assert_close
from runs import PLAIN, brief, cpus

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
