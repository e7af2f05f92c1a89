"""Files in tests/earlier_version that the version of 28 November 2026 wrote, by `run` below and by `Model.save`.

What this version no longer has is ignored where it decided nothing, and refused where it decided what was learned.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from runs import cpus

import d2lmgpu as d2l
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Flatten, ReLU, sequential
from d2lmgpu.training.checkpoints import CheckpointError, load_checkpoint, save_checkpoint

FOLDER = Path(__file__).parents[1] / "earlier_version"
LABELS = np.arange(40) % 2
IMAGES = (np.arange(40 * 36).reshape(40, 1, 6, 6) * 37 % 128 + 120 * LABELS[:, None, None, None]).astype(np.uint8)
DATA = IMAGES, LABELS, IMAGES[:20], LABELS[:20], ["dark", "bright"]
NETWORK = sequential((1, 6, 6), Conv2d(2, 3), BatchNorm(), ReLU(), Flatten(), Dense(2))


def run(num_epochs, **more):
    settings = {"network": NETWORK, "batch_size": 10, "lr": 0.05, "optimizer": "momentum", "init": "he", "data": DATA}
    return d2l.train(cpus(2), num_epochs=num_epochs, progress=False, **settings | more)


def test_a_run_goes_on(tmp_path, capfd):
    """To what the earlier version reached without a break; another machine may round otherwise."""
    file = shutil.copy(FOLDER / "run.ckpt", tmp_path)
    written = load_checkpoint(file).state
    assert "likeness" in written and {"elastic", "wiring"} < written["history"].keys()
    history = run(4, resume=file, checkpoint=file).history
    assert history.train_loss == pytest.approx([0.29959993, 0.09785408, 0.01154077, 0.00539543], rel=1e-3)
    assert history.train_loss[:2] == written["history"]["train_loss"] and capfd.readouterr().err == ""
    again = load_checkpoint(file).state
    assert "likeness" not in again and not {"elastic", "wiring"} & again["history"].keys()


def test_a_model_is_loaded():
    model = d2l.load_model(FOLDER / "tiny.model")
    assert repr(model) == "<Model: 5 layers, 90 parameters, 2 classes>" and model.classes == ["dark", "bright"]
    np.testing.assert_allclose(model.predict(IMAGES[:2], cpus(1)), [[0.9996, 0.0004], [0, 1]], atol=1e-4)
    assert model.evaluate(IMAGES, LABELS) == 1


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"precision": "tf32"}, "another run: precision is 'float32' here and 'tf32' in the checkpoint$"),
        ({"batch_statistics": "synchronised"}, "batch_statistics is 'local' here and 'synchronised' in the"),
        ({"sums": "exact", "split": "zero1"}, "exact sums and a split, which went; start again without one"),
    ],
)
def test_what_only_the_earlier_version_could_do(tmp_path, settings, said):
    """One line names it."""
    saved = load_checkpoint(FOLDER / "run.ckpt")
    saved.state["history"] |= settings
    save_checkpoint(tmp_path / "file", saved)
    with pytest.raises(CheckpointError, match=said):
        run(4, resume=tmp_path / "file")
