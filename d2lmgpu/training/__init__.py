"""Training and evaluation."""

from .accuracy import confusion_matrix, evaluate, predict
from .begin import train
from .history import History, Result, sha256, why_diverged

__all__ = ["History", "Result", "confusion_matrix", "evaluate", "predict", "sha256", "train", "why_diverged"]
