"""Learning rates by time."""

import numpy as np
import pytest

from d2lmgpu.networks.lr_schedules import learning_rates


def all_rates(steps, num_epochs, **settings):
    return np.concatenate([learning_rates(0.8, epoch, steps, num_epochs, **settings) for epoch in range(num_epochs)])


def test_constant():
    assert (all_rates(7, 3) == 0.8).all()


def test_warmup_rises_in_equal_parts():
    rates = all_rates(4, 3, warmup=2)
    np.testing.assert_allclose(rates[:8], 0.8 * np.arange(1, 9) / 8, rtol=1e-12)
    assert (rates[8:] == 0.8).all()
    np.testing.assert_allclose(all_rates(4, 2, warmup=0.5)[:3], [0.4, 0.8, 0.8], rtol=1e-12)


def test_what_comes_after_the_warmup():
    cosine = all_rates(10, 4, schedule="cosine")
    assert cosine[0] == 0.8 and cosine[20] == pytest.approx(0.4) and 0 < cosine[-1] < 0.002
    assert (np.diff(cosine) < 0).all()
    np.testing.assert_allclose(all_rates(5, 4, schedule="step"), [0.8] * 10 + [0.08] * 10)
    np.testing.assert_allclose(all_rates(5, 5, warmup=1, schedule="step")[5:], [0.8] * 10 + [0.08] * 10)
    np.testing.assert_allclose(all_rates(2, 2, schedule=lambda progress: 1 - progress), [0.8, 0.6, 0.4, 0.2])


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_first_step_after_the_warmup_is_the_schedules(warmup):
    """Whose first factor need not be 1."""
    rates = all_rates(2, 2 + warmup, warmup=warmup, schedule=lambda progress: 0.5 + progress)
    np.testing.assert_allclose(rates[2 * warmup :], [0.4, 0.6, 0.8, 1.0])


def test_bad_settings():
    with pytest.raises(ValueError, match="'linear' is unknown; choose from constant, cosine, step"):
        learning_rates(0.1, 0, 5, 2, schedule="linear")
    for warmup in (-1, 2, 3):
        with pytest.raises(ValueError, match="at least 0 and less than all"):
            learning_rates(0.1, 0, 5, 2, warmup=warmup)
