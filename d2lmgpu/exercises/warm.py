"""The fork server imports this, so that supervisors and jobs begin with all that takes long to import."""

import matplotlib.pyplot  # noqa: F401

from . import answers  # noqa: F401
from .jobs import hide

hide()
