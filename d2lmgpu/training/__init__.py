"""Training and evaluation."""

from .accuracy import confusion_matrix, evaluate, predict
from .begin import train
from .history import History, Result, sha256, why_diverged
from .model import Model, load_model
from .resume import load_run
from .settings import Settings
from .together import DriftError
