"""The best model so far is kept in a file."""

import numpy as np
import pytest
from clusters_in_threads import in_each
from one_device import NORMED
from training_runs import cpus, quick, random_data

import d2lmgpu as d2l
from d2lmgpu.data.minibatches import first_examples
from d2lmgpu.training import History

pytestmark = pytest.mark.threads


class Watch(d2l.Callback):
    """Keeps what is learned after each epoch."""

    def __init__(self, evaluate):
        self.evaluate, self.reached = evaluate, []

    def on_epoch(self, history):
        self.reached.append(self.evaluate())


DATA = random_data(NORMED, 60, 50)


@pytest.mark.parametrize("split", [None, "layers", "zero3"])
def test_the_best_model_is_kept(tmp_path, split):
    """With a rate at which what was learned is lost again; batch norm's statistics are those of the same epoch."""
    file = tmp_path / "best"
    watch = Watch(lambda: d2l.load_model(file).evaluate(*DATA[2:]))
    options = {"init": "he", "lr": 0.6, "seed": 2, "num_epochs": 6, "network": NORMED, "split": split}
    devices = cpus(2)
    history, _ = quick(devices, DATA, keep_best=file, callbacks=[watch], **options)
    best = np.maximum.accumulate(history.test_accuracy)
    assert watch.reached == pytest.approx(best, abs=0.021)  # on the host one image may be taken for another
    assert history.best["epoch"] == 1 + int(np.argmax(history.test_accuracy)) < 6
    assert history.best["train_loss"] == history.train_loss[history.best["epoch"] - 1]
    at_best = quick(devices, DATA, **options | {"num_epochs": history.best["epoch"]})
    model = d2l.load_model(file)
    for one, other in zip([*model.params, *model.statistics], [*at_best.params, *at_best.statistics], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("split", [None, "zero3"])
def test_processes_keep_what_one_keeps(tmp_path, split):
    """Rank 0 writes; where no process has all parameters, all of them give their parts."""
    options = {"init": "he", "lr": 0.05, "num_epochs": 2, "network": NORMED, "split": split, "data": DATA}
    options |= {"batch_size": 25, "progress": False}
    d2l.train(3, keep_best=tmp_path / "one", **options)
    in_each((1, 2), lambda cluster: d2l.train(cluster, keep_best=tmp_path / "several", **options))
    one, several = (d2l.load_model(tmp_path / name) for name in ("one", "several"))
    for array, expected in zip([*several.params, *several.statistics], [*one.params, *one.statistics], strict=True):
        np.testing.assert_array_equal(array, expected)


def test_a_resumed_run_knows_what_was_best(tmp_path):
    options = {"lr": 0.6, "seed": 2, "network": NORMED, "keep_best": tmp_path / "best", "checkpoint": tmp_path / "run"}
    history, _ = quick(cpus(1), DATA, num_epochs=6, seed=2, network=NORMED, lr=0.6)
    best = history.best["epoch"]
    quick(cpus(1), DATA, num_epochs=best, **options)
    before = (tmp_path / "best").read_bytes()
    resumed, _ = quick(cpus(1), DATA, num_epochs=6, resume=tmp_path / "run", **options)
    assert resumed.best == history.best and resumed.learning_rates == history.learning_rates
    assert best < 6 and (tmp_path / "best").read_bytes() == before


def history(**lists):
    return History(["cpu(0)"], "cpu", {}, **{"train_loss": [1.0] * 4, "train_accuracy": [0.5] * 4} | lists)


def test_what_is_best():
    assert history().best is None
    assert history(test_accuracy=[0.2, 0.4, 0.4, 0.3]).best["epoch"] == 2
    found = history(test_loss=[3.0, 1.0, 2.0, float("nan")]).best
    assert (found["epoch"], found["test_loss"]) == (2, 1.0) and "test_accuracy" not in found
    nan, inf = float("nan"), float("inf")
    assert history(test_loss=[nan, 1.0, 2.0, 0.5]).best["epoch"] == 4
    assert history(test_loss=[inf, 3.0, 3.0, -inf]).best["epoch"] == 2
    assert history(test_loss=[nan] * 4).best is history(test_loss=[inf] * 4).best is None
    assert history(test_accuracy=[0.9, 0.5, 0.6, 0.7], train_loss=[nan, 2.0, 1.0, inf]).best["epoch"] == 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "network, split, loss, good",
    [
        ("lenet-bn", None, "cross_entropy", 0),
        ("lenet", "layers", "squared_error", 0),
        ("lenet-bn", None, "squared_error", 1),
        ("lenet", "layers", "cross_entropy", 1),
        ("lenet", "zero3", "cross_entropy", 1),
    ],
)
def test_what_is_not_finite_is_never_right_and_never_the_best(small, tmp_path, network, split, loss, good):
    """The weights become NaN after ``good`` epochs. The largest of NaNs would be class 0, which most images are."""
    X_train, y_train, X_test, y_test = first_examples(small, 100)
    y_test = np.where(np.arange(len(y_test)) % 8, 0, y_test)
    data = X_train, y_train, X_test, y_test if loss == "cross_entropy" else np.eye(10, dtype=np.float32)[y_test]
    own = {"top 3": lambda outputs, y: (outputs.argsort(axis=1)[:, -3:] == 9).sum()}  # NaN is sorted last
    options = {"network": network, "split": split, "loss": loss, "metrics": own, "keep_best": tmp_path / "best"}
    rates = {"lr": 1, "schedule": lambda progress: 1e-3 if 3 * progress < good else 1e35, "num_epochs": 3}
    result = quick(2, data, batch_size=25, **options, **rates)
    history = result.history
    assert history.diverged and len(history.train_loss) == good + 1
    assert np.isnan(history.metrics["top 3"][good])
    assert history.test_accuracy[good:] == [0] if loss == "cross_entropy" else np.isnan(history.test_loss[good])
    assert (history.best and history.best["epoch"]) == (good or None)
    assert (tmp_path / "best").exists() == bool(good)
    if good:
        assert np.isfinite(d2l.load_model(tmp_path / "best").predict(X_test)).all()
    assert result.model.evaluate(X_test, y_test) == 0 or loss != "cross_entropy"
