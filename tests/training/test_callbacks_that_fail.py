"""One's own callback ends training, after the checkpoint was written; one that only shows something is left out."""

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.networks import Dense, Flatten, sequential
from d2lmgpu.training.checkpoints import load_checkpoint


class Fails(d2l.Callback):
    def on_epoch(self, history):
        raise RuntimeError("mine")


class FailsToShow(Fails):
    only_shows = True


def test_callbacks_that_fail(tmp_path, capsys):
    X, y = np.zeros((6, 1, 2, 2), np.float32), np.arange(6) % 2
    settings = {"data": (X, y, X, y), "network": sequential((1, 2, 2), Flatten(), Dense(2)), "num_epochs": 2}
    with pytest.raises(RuntimeError, match="mine"):
        d2l.train(2, callbacks=[Fails()], checkpoint=tmp_path / "c", progress=False, **settings)
    assert load_checkpoint(tmp_path / "c").state["position"]["epoch"] == 1
    callbacks = [FailsToShow()]
    history, _ = d2l.train(2, callbacks=callbacks, progress=False, **settings)
    assert len(history.train_loss) == 2 and len(callbacks) == 1
    assert capsys.readouterr().err == "note: FailsToShow failed (RuntimeError: mine); training goes on without it\n"
