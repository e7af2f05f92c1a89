"""Settings by their names: ``train(devices, lr=0.1)`` beside ``train(devices, settings)``."""

import functools
import inspect
from dataclasses import fields, replace

from ..arguments import perhaps_meant, shown
from .settings import Settings

SETTINGS = [about.name for about in fields(Settings)]


def takes_settings(function):
    """Let ``function(devices, settings, …)`` be called with settings by name, too: ``function(devices, lr=0.1)``.

    Or in their order, as in the textbook: ``function(devices, 256, 0.1)``. Where a `Settings` is
    given, names change it. Raises TypeError for arguments that there are not.
    """
    _, _, *own = inspect.signature(function).parameters.values()
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = [inspect.Parameter("devices", kind, default=None)]
    first += [inspect.Parameter(about.name, kind, default=about.default) for about in fields(Settings)]
    public = inspect.Signature([*first, *own])

    @functools.wraps(function)
    def call(*args, **named):
        settings = Settings()
        if len(args) == 2 and isinstance(args[1], Settings):
            *args, settings = args
        for name in named:
            if name not in public.parameters:
                meant = perhaps_meant(name, public.parameters)
                raise TypeError(f"{function.__name__}: there is no argument {shown(name)}{meant}")
        given = public.bind(*args, **named).arguments
        changes = {name: given.pop(name) for name in SETTINGS if name in given}
        return function(given.pop("devices", None), replace(settings, **changes), **given)

    call.__signature__ = public
    return call
