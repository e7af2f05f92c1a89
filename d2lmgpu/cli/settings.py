"""The command line's options for `Settings`, one for each field."""

import re
from dataclasses import fields

from ..training.fields import called, kind_of, meaning
from ..training.settings import Settings
from .options import add_option, listed

ALL = [about.name for about in fields(Settings)]


def add_settings(command, as_type=lambda kind: kind, names=ALL):
    """Add an option for each of the settings with these names.

    ``as_type(kind)`` is the function that reads an option's text; flags and loads have their own functions.
    """
    group = command.add_argument_group("settings")
    for about in (about for about in fields(Settings) if about.name in names):
        flag = "--" + called(about).replace("_", "-")
        if about.type is bool:
            _add_flag(group, flag, about)
        elif kind_of(about) == list[float]:
            add_option(group, flag, numbers_or_auto, None, meaning(about))
        else:
            read = as_splits if about.name == "split" and as_type is listed else as_type(kind_of(about))
            also = ", or a file FILE.py" if about.name == "network" else ""
            add_option(group, flag, read, about.default, meaning(about) + also)


def _add_flag(group, flag, about):
    if about.default:
        help = about.metadata["without"]
        group.add_argument(flag.replace("--", "--no-"), action="store_false", dest=called(about), help=help)
    else:
        group.add_argument(flag, action="store_true", help=about.metadata["help"])


def as_splits(text):
    """Read "zero3,data=2,layers=2" as ["zero3", "data=2,layers=2"]: a product keeps its two factors."""
    return [split.strip() for split in re.findall("[^,=]+=[^,]*,[^,=]+=[^,]*|[^,]+", text)]


def numbers_or_auto(text):
    return text if text == "auto" else listed(float)(text)


def settings(options, names=ALL):
    """The values of the options that `add_settings` added, by the settings' names."""
    return {about.name: getattr(options, called(about)) for about in fields(Settings) if about.name in names}
