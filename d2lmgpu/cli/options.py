"""Options of several commands: how they are declared and read, those for `Settings`, and which files they name."""

import argparse
import os
import re
from dataclasses import fields

from ..base.arguments import check_path
from ..base.files import check_writable, same_file, save_figure, write_json
from ..collectives.benchmark import parse_size
from ..devices import ENVIRONMENTS, choose_devices
from ..training.checks import cli_name, kind_of, meaning
from ..training.settings import Settings

_ALL = [about.name for about in fields(Settings)]


def add_option(command, flag, kind, default, help):
    """Add an option with a default value, which its help mentions unless it is None; return the option's action."""
    help = help if default is None else f"{help} (default: {default})"
    return command.add_argument(flag, type=kind, default=default, metavar="X", help=help)


def listed_numbers(kind):
    """A function that reads a string such as "0.1,0.2" as a list, using ``kind`` for each part."""

    def read(text):
        return [kind(part.strip()) for part in text.split(",")]

    read.__name__ = f"list of {kind.__name__}"  # argparse uses this name in its error
    return read


def file_name(text):
    """Read the name of a file or a folder. A shell leaves the ``~`` of ``--json=~/x`` to us."""
    try:
        check_path("the name", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return os.path.expanduser(text)


def taken(options, *names):
    """A dict of the options with these names, to be passed as arguments by name."""
    return {name: getattr(options, name) for name in names}


def add_output(command, flag, help, metavar="FILE", check=check_writable):
    """Add an option that names a file or folder to be written; ``check(path)`` raises the error that writing would."""
    action = command.add_argument(flag, type=file_name, metavar=metavar, help=help)
    command.set_defaults(outputs=(*(command.get_default("outputs") or ()), (flag, action.dest, check)))


def add_input(command, name, help, metavar="FILE", **more):
    """Add an option, or an argument without a flag, that names a file to be read."""
    action = command.add_argument(name, type=file_name, metavar=metavar, help=help, **more)
    command.set_defaults(inputs=(*(command.get_default("inputs") or ()), action.dest))


def check_files(options):
    """Before any work, raise the error that writing the results would raise later.

    Raises ValueError if two results share a file, or if one would be written over a file that is read; only a run that
    is resumed may go on in its own checkpoint.
    """
    given, read = {}, [getattr(options, dest) for dest in getattr(options, "inputs", ())]
    read = [path for paths in read for path in (paths if isinstance(paths, list) else [paths]) if path is not None]
    for flag, dest, check in options.outputs:
        path = getattr(options, dest)
        if path is None:
            continue
        check(path)
        for other in read:
            if same_file(path, other) and flag != "--checkpoint":
                raise ValueError(f"{flag} {path} would be written over {other}, which is read; give another name")
        for other, taken in given.items():
            if same_file(path, taken):
                raise ValueError(f"{flag} {path} and {other} {taken} are the same file; give each its own")
        given[flag] = path


def write_results(options, result=None, *others, **figures):
    """Write what the options name files for: a ``result`` as JSON, ``figures``, and ``others`` as in `write_all`.

    ``figures``: the functions that draw the figures, by the names of the options.
    """
    drawn = [(getattr(options, name), save_figure, draw) for name, draw in figures.items()]
    write_all((result is not None and options.json, write_json, result), *drawn, *others)


def write_all(*results):
    """Call ``write(path, result)`` for each (path, write, result) with a path; the first error is raised at the end."""
    errors = []
    for path, write, result in results:
        if path:
            try:
                write(path, result)
            except Exception as error:  # what can be written is written
                errors.append(error)
    if errors:
        raise errors[0]


def add_devices(command, default, environments=ENVIRONMENTS):
    """Add --environment, --devices and --memory-limit; ``default`` is the default of --devices that the help states."""
    add_option(command, "--environment", str, "auto", ", ".join(environments))
    help = f"number of devices (2), or which ones (0,2 or gpu:0,cpu:0); default: {default}"
    command.add_argument("--devices", metavar="K", help=help)
    command.add_argument("--memory-limit", metavar="SIZE", help="bytes that each device may use, such as 512M or 1.5G")


def find_devices(options, default=None, environment=None):
    """The environment and the devices that were asked for. ``environment``: replaces that of the options."""
    asked = default if options.devices is None else options.devices
    environment, devices = choose_devices(environment or options.environment, asked)
    limit_memory(options, devices)
    return environment, devices


def limit_memory(options, devices):
    """Apply --memory-limit to the devices, if the command has this option and it is given."""
    if getattr(options, "memory_limit", None) is not None:
        for device in devices:
            device.limit_memory(parse_size(options.memory_limit))


def add_settings(command, as_type=lambda kind: kind, names=_ALL):
    """Add an option for each of the settings with these names.

    ``as_type(kind)`` is the function that reads an option's text; flags and loads have their own functions.
    """
    group = command.add_argument_group("settings")
    for about in (about for about in fields(Settings) if about.name in names):
        flag = "--" + cli_name(about).replace("_", "-")
        if about.type is bool:
            _add_flag(group, flag, about)
        elif kind_of(about) == list[float]:
            add_option(group, flag, numbers_or_auto, None, meaning(about))
        else:
            read = as_splits if about.name == "split" and as_type is listed_numbers else as_type(kind_of(about))
            also = ", or a file FILE.py" if about.name == "network" else ""
            add_option(group, flag, read, about.default, meaning(about) + also)


def _add_flag(group, flag, about):
    if about.default:
        help = about.metadata["without"]
        group.add_argument(flag.replace("--", "--no-"), action="store_false", dest=cli_name(about), help=help)
    else:
        group.add_argument(flag, action="store_true", help=about.metadata["help"])


def as_splits(text):
    """Read "zero3,data=2,layers=2" as ["zero3", "data=2,layers=2"]: a product keeps its two factors."""
    return [split.strip() for split in re.findall("[^,=]+=[^,]*,[^,=]+=[^,]*|[^,]+", text)]


def numbers_or_auto(text):
    return text if text == "auto" else listed_numbers(float)(text)


def settings(options, names=_ALL):
    """The values of the options that `add_settings` added, by the settings' names."""
    return {about.name: getattr(options, cli_name(about)) for about in fields(Settings) if about.name in names}
