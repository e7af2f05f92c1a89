"""Experiments: many trainings over a grid of settings, and training on 1, 2, 4, … devices, measured and predicted."""

from .predicted_scaling import (
    ComputeTimes as ComputeTimes,
    fit_messages as fit_messages,
    predict_scaling as predict_scaling,
)
from .scaling import check_counts as check_counts, count_places as count_places, measure_scaling as measure_scaling
from .scaling_plots import (
    check_axes as check_axes,
    plot_curves as plot_curves,
    plot_phases as plot_phases,
    plot_scaling as plot_scaling,
    plot_sweep as plot_sweep,
)
from .sweep_files import MEASURES as MEASURES, load_sweep as load_sweep
from .sweeps import MODES as MODES, sweep as sweep
from .trials import DEFAULTS as DEFAULTS, grid as grid, run_trial as run_trial
