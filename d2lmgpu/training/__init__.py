"""Training and evaluation."""

from .accuracy import confusion_matrix as confusion_matrix, evaluate as evaluate, predict as predict
from .begin import train as train
from .history import History as History, sha256 as sha256, why_diverged as why_diverged
from .model import Model as Model, Result as Result, load_model as load_model
from .resume import load_run as load_run
from .settings import Settings as Settings
