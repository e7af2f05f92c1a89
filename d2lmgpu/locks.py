"""Names that sweeps still import from here; there are no locks any more."""

from contextlib import nullcontext as holding  # noqa: F401

from .output import is_stream as is_stream, naming as naming, target as target
