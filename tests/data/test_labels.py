"""Labels of any whole type; those that are none are in the table of errors (tests/base/test_errors.py)."""

import numpy as np
import pytest
from runs import DATA, TINY, brief, cpus

import d2lmgpu as d2l
from d2lmgpu.layers import check_labels
from d2lmgpu.networks import init_params

LABELS = np.arange(12) % 4
X = DATA[0][:12]
PARAMS = init_params(1, init="he", network=TINY)
STATISTICS = d2l.networks.init_statistics(TINY)


def test_labels_of_any_whole_type_or_a_list():
    for y in (LABELS.tolist(), *(LABELS.astype(kind) for kind in "bBhHiIlLqQ")):
        check_labels(y, 12, 4)
        found = d2l.evaluate(PARAMS, X, y, cpus(1), TINY, STATISTICS)
        assert found == d2l.evaluate(PARAMS, X, LABELS, cpus(1), TINY, STATISTICS)
    check_labels([], 0, 10)
    losses = [brief(1, (X, y, X, y)).history.train_loss for y in (LABELS, [*LABELS])]
    assert losses[0] == losses[1]


def test_what_lies_on_a_gpu_is_not_read(standin, monkeypatch):
    """Its values would have to be waited for; its shape and type are known."""
    y = d2l.put(LABELS[:, None], d2l.gpu(0))
    with pytest.raises(ValueError, match=r"labels of shape \(12, 1\)"):
        check_labels(y, 12, 4)
    monkeypatch.setattr(type(y.raw), "min", None, raising=False)
    check_labels(d2l.put(LABELS + 5, d2l.gpu(0)), 12, 4)
    check_labels(d2l.put(LABELS + 5, d2l.gpu(0)).raw, 12, 4)
    with pytest.raises(ValueError, match="labels of type float64"):
        check_labels(d2l.put(LABELS / 2, d2l.gpu(0)).raw, 12, 4)
