"""Training and evaluation."""

from .accuracy import evaluate
from .history import History, Result, sha256, why_diverged
from .loop import train

__all__ = ["History", "Result", "evaluate", "sha256", "train", "why_diverged"]
