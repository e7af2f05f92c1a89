"""A grader's supervisor imports this, so that its jobs begin with all that takes long to import."""

import matplotlib.pyplot  # noqa: F401

from . import answers  # noqa: F401
