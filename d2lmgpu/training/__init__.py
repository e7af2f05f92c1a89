"""Training and evaluation."""

from .accuracy import confusion_matrix, evaluate, predict
from .history import History, Result, sha256, why_diverged
from .loop import train

__all__ = ["History", "Result", "confusion_matrix", "evaluate", "predict", "sha256", "train", "why_diverged"]
