"""Scaling experiments: training on 1, 2, 4, … devices, as measured, as predicted and as drawn."""

from .machines import measure_cluster_scaling
from .measure import measure_compute, measure_scaling
from .plot import plot_extrapolation, plot_phases, plot_scaling
from .predict import Compute, Prediction, fit_messages, predict_scaling
from .setup import HOW, MODES, Scaling, check_counts, count_places
from .turns import Row
