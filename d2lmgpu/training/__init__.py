"""Training and evaluation."""

from .accuracy import confusion_matrix, evaluate, predict
from .begin import train
from .history import History, Result, sha256, why_diverged
from .saved import load_run, network_of

__all__ = [
    "History",
    "Result",
    "confusion_matrix",
    "evaluate",
    "load_run",
    "network_of",
    "predict",
    "sha256",
    "train",
    "why_diverged",
]
