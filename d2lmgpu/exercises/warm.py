"""What the fork server has ready for supervisors and jobs: all that takes long to import, and what answers import."""

import matplotlib.pyplot  # noqa: F401

from . import answers  # noqa: F401
from .jobs import hide

hide()
