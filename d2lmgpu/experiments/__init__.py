"""Experiments: many trainings over a grid of settings, and training on 1, 2, 4, … devices, measured and predicted.

Sweeps train many networks: trials.py has one of them, from its settings to its row of results, and sweeps.py all of
them, in processes or on any executor. Scaling experiments train the same network on different numbers of devices:
scaling.py measures, and predicted_scaling.py predicts. plots.py draws both. checkup.py, the third kind of experiment,
tries whether this machine does all that training relies on.
"""

from .plots import (
    MEASURES as MEASURES,
    check_axes as check_axes,
    plot_curves as plot_curves,
    plot_phases as plot_phases,
    plot_scaling as plot_scaling,
    plot_sweep as plot_sweep,
)
from .predicted_scaling import (
    ComputeTimes as ComputeTimes,
    fit_messages as fit_messages,
    predict_scaling as predict_scaling,
)
from .scaling import check_counts as check_counts, count_places as count_places, measure_scaling as measure_scaling
from .sweeps import MODES as MODES, sweep as sweep
from .trials import DEFAULTS as DEFAULTS, grid as grid, load_sweep as load_sweep, run_trial as run_trial
