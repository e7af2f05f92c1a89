"""Train many networks over a grid of settings: one network per core or GPU at a time, or each on all devices.

A trial is plain data, from its settings to the resulting row, so that processes on this machine, MPI and Dask can all
run it in the same way, through a `concurrent.futures.Executor`.
"""

from .plot import check_axes as check_axes, plot_curves as plot_curves, plot_sweep as plot_sweep
from .results import MEASURES as MEASURES, load_sweep as load_sweep
from .run import MODES as MODES, sweep as sweep
from .trials import DEFAULTS as DEFAULTS, grid as grid, run_trial as run_trial
