"""The options of the command line for `Settings`, one for each field that a person can type."""

from dataclasses import fields

from ..training.settings import Settings, called, meaning
from .options import add_option, listed, number, whole

READ = {int: whole, float: number, str: str}


def add_settings(command, as_type=lambda kind: kind):
    """Add an option for each setting; ``as_type`` of a type is what reads an option's text, flags and loads aside."""
    group = command.add_argument_group("settings")
    for about in fields(Settings):
        flag = "--" + called(about).replace("_", "-")
        if about.type is bool:
            _add_flag(group, flag, about)
        elif about.type is list:
            group.add_argument(flag, type=_numbers_or_auto, metavar="X", help=meaning(about))
        else:
            add_option(group, flag, as_type(READ[about.type]), about.default, meaning(about))


def _add_flag(group, flag, about):
    if about.default:
        help = about.metadata["without"]
        group.add_argument(flag.replace("--", "--no-"), action="store_false", dest=called(about), help=help)
    else:
        group.add_argument(flag, action="store_true", help=about.metadata["help"])


def _numbers_or_auto(text):
    return text if text == "auto" else listed(number)(text)


def settings(options):
    """The options of `add_settings` by the settings' names."""
    return {about.name: getattr(options, called(about)) for about in fields(Settings)}
