"""Scaling experiments: measure, predict and plot training on 1, 2, 4, … devices."""

from .measure import check_counts as check_counts, count_places as count_places, measure_scaling as measure_scaling
from .plot import plot_phases as plot_phases, plot_scaling as plot_scaling
from .predict import Compute as Compute, fit_messages as fit_messages, predict_scaling as predict_scaling
