"""Many networks: a grid of settings, trained one network a core or GPU at a time, or each on all devices.

A trial is plain data, from its settings to the row that it ends with, so that
processes of this machine, MPI or Dask do it alike, through a `concurrent.futures.Executor`.
"""

from .plot import check_axes, plot_curves, plot_sweep
from .results import MEASURES, Sparingly, document, load_sweep
from .run import MODES, sweep
from .trial import run_trial
from .trials import DEFAULTS, grid
