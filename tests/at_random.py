"""Properties that Hypothesis tries: some examples in the short run, always the same, and others every night."""

import pytest
from hypothesis import HealthCheck, given, settings


def nightly(*values):
    """Values for ``parametrize`` that are only tried at night; tuples are values of several arguments."""
    each = (value if type(value) is tuple else (value,) for value in values)
    return [pytest.param(*value, marks=pytest.mark.nightly) for value in each]


def at_random(examples, *strategies, nights=30):
    """A decorator for a function of what the strategies draw: a test of so many examples, ``nights`` times at night."""

    def decorate(check):
        @pytest.mark.parametrize("examples", [examples, *nightly(nights * examples)])
        def test(examples, request):
            is_short = request.node.get_closest_marker("nightly") is None
            limits = settings(
                max_examples=examples,
                derandomize=is_short,
                deadline=None,
                database=None,
                suppress_health_check=[HealthCheck.too_slow],
            )
            limits(given(*strategies)(check))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate
