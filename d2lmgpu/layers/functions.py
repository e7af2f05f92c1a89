"""A layer's forward function, without the options that it was given."""

import functools


def function_of(layer):
    """The layer's forward function, and its options if it is a `functools.partial`."""
    if isinstance(layer.forward, functools.partial):
        return layer.forward.func, layer.forward.keywords
    return layer.forward, {}
