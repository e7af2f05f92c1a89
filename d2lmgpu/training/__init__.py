"""Training and evaluation.

`train` (begin.py) checks its arguments (settings.py, options.py), prepares a `Run` and lets it run (loop.py). The run's
steps are done by a `Runner` (runner.py), which make_runner.py chooses: the textbook's steps, those of a plan, or CUDA
graphs. After each epoch, the test set is evaluated (evaluation.py), and a checkpoint is written (resume.py).
"""

from .accuracy import confusion_matrix as confusion_matrix, evaluate as evaluate, predict as predict
from .begin import train as train
from .history import History as History, sha256 as sha256, why_diverged as why_diverged
from .model import Model as Model, Result as Result, load_model as load_model
from .resume import load_run as load_run
from .settings import Settings as Settings
