"""Scaling experiments: training on 1, 2, 4, … devices, as measured, as predicted and as drawn."""

from .machines import ClusterScaling, measure_cluster_scaling
from .measure import Scaling, measure_compute, measure_scaling
from .plot import plot_extrapolation, plot_phases, plot_scaling
from .predict import Compute, Prediction, fit_messages, predict_scaling
from .rows import Row
from .setup import HOW, MODES, check_counts, count_places

__all__ = [
    "HOW",
    "MODES",
    "ClusterScaling",
    "Compute",
    "Prediction",
    "Row",
    "Scaling",
    "check_counts",
    "count_places",
    "fit_messages",
    "measure_cluster_scaling",
    "measure_compute",
    "measure_scaling",
    "plot_extrapolation",
    "plot_phases",
    "plot_scaling",
    "predict_scaling",
]
