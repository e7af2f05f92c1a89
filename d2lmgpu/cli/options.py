"""The command line: argparse, with one-line errors that suggest what was perhaps meant.

The options of several commands are declared and read here, such as those for `Settings` and those that name files.
"""

import argparse
import os
import re
from dataclasses import fields

from .. import __version__
from ..base.arguments import check_path
from ..base.files import check_plot, check_writable, same_file, save_figure, write_json
from ..base.names import perhaps_meant
from ..base.text import shortened, shown
from ..training.checks import cli_name, kind_of, meaning
from ..training.settings import Settings

_ALL = [about.name for about in fields(Settings)]


def parse(modules, arguments):
    """The options of a command line; each of ``modules`` is a command.

    Unlike argparse's own ``parse_args``, this also accepts more files after an option that follows the first files.
    """
    parser, commands = make_parser(modules)
    options, rest = parser.parse_known_args(arguments)
    if any(word.startswith("-") for word in rest) or (rest and not hasattr(options, "files")):
        commands.choices[options.name].refuse(rest)
    if rest:
        options.files += rest
    return options


def make_parser(modules):
    """The parser, and the action whose ``choices`` are the parsers of the commands, by name.

    Each module has the command's name. Its docstring, from the first ": " on, is what ``--help`` prints about it, its
    function ``add_to`` adds options to the command's parser, and its function ``run`` is called with the options.
    """
    parser = _Parser(prog="d2lmgpu", description="Train LeNet on several devices, from scratch.")
    parser.add_argument("--version", action="version", version=f"d2lmgpu {__version__}")
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND", parser_class=_Parser)
    for module in modules:
        about, _, more = (module.__doc__ or "").partition("\n\n")  # with -OO there is none
        help = " ".join(about.split()).partition(": ")[2].removesuffix(".").replace("``", "")
        command = commands.add_parser(module.__name__.rpartition(".")[2], help=help, description=more or help)
        command.set_defaults(command=module.run)
        module.add_to(command)
        add_output(command, "--json", "write the result as JSON")
    return parser, commands


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """Print one line, and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {' '.join(map(shortened, message.split()))} (see {self.prog} --help)\n")

    def refuse(self, words):
        """Exit with an error that names the unknown options, or else arguments, and what the first perhaps means."""
        options = [word for word in words if word.startswith("-")]
        words = options or words
        meant = perhaps_meant(words[0].split("=")[0], self._option_string_actions) if options else ""
        self.error(f"unknown argument{'s' * (len(words) > 1)} {', '.join(map(shown, words))}{meant}")

    def _check_value(self, action, value):  # overrides argparse's own, to suggest a command
        if action.choices is not None and value not in action.choices:
            known = ", ".join(action.choices)
            self.error(f"{shown(value)} is not a command; choose from {known}{perhaps_meant(value, action.choices)}")


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


def add_plot(command, flag, help):
    """Add an option that names the file of a plot."""
    add_output(command, flag, f"{help} (.png, .svg or .pdf)", check=check_plot)


def add_input(command, name, help, metavar="FILE", **more):
    """Add an option, or an argument without a flag, that names a file to be read."""
    action = command.add_argument(name, type=file_name, metavar=metavar, help=help, **more)
    command.set_defaults(inputs=(*(command.get_default("inputs") or ()), action.dest))


def check_files(options):
    """Before any work, raise the error that writing the results would raise later.

    Raises ValueError if two results share a file, or if one would be written over a file that is read; only a run that
    is resumed may go on in its own checkpoint.
    """
    given, read = {}, []
    for dest in getattr(options, "inputs", ()):
        path = getattr(options, dest)
        read += path if isinstance(path, list) else [path] * (path is not None)
    chosen = [(flag, getattr(options, dest), check) for flag, dest, check in options.outputs]
    for flag, path, check in [each for each in chosen if each[1] is not None]:
        check(path)
        for other in read:
            if same_file(path, other) and flag != "--checkpoint":
                raise ValueError(f"{flag} {path} would be written over {other}, which is read; give another name")
        for other, taken in given.items():
            if same_file(path, taken):
                raise ValueError(f"{flag} {path} and {other} {taken} are the same file; give each its own")
        given[flag] = path


def write_results(options, result=None, *others, **figures):
    """Write what the options name files for: a ``result`` as JSON, ``figures``, and ``others``.

    ``figures``: the functions that draw the figures, by the names of the options. ``others``: tuples (path, write,
    result), for ``write(path, result)``. The first error is raised when all that can be written is written.
    """
    drawn = [(getattr(options, name), save_figure, draw) for name, draw in figures.items()]
    errors = []
    for path, write, what in [(result is not None and options.json, write_json, result), *drawn, *others]:
        if path:
            try:
                write(path, what)
            except Exception as error:  # whatever drawing and writing raise
                errors.append(error)
    if errors:
        raise errors[0]


def add_settings(command, as_type=lambda kind: kind, names=_ALL):
    """Add an option for each of the settings with these names.

    ``as_type(kind)`` is the function that reads an option's text; flags and loads have their own functions.
    """
    group = command.add_argument_group("settings")
    for about in (about for about in fields(Settings) if about.name in names):
        flag = "--" + cli_name(about).replace("_", "-")
        if about.type is bool and about.default:
            flag, help = flag.replace("--", "--no-"), about.metadata["without"]
            group.add_argument(flag, action="store_false", dest=cli_name(about), help=help)
        elif about.type is bool:
            group.add_argument(flag, action="store_true", help=about.metadata["help"])
        elif kind_of(about) == list[float]:
            add_option(group, flag, numbers_or_auto, None, meaning(about))
        else:
            read = as_splits if about.name == "split" and as_type is listed_numbers else as_type(kind_of(about))
            also = ", or a file FILE.py" if about.name == "network" else ""
            add_option(group, flag, read, about.default, meaning(about) + also)


def as_splits(text):
    """Read "zero3,data=2,layers=2" as ["zero3", "data=2,layers=2"]: a product keeps its two factors."""
    return [split.strip() for split in re.findall("[^,=]+=[^,]*,[^,=]+=[^,]*|[^,]+", text)]


def numbers_or_auto(text):
    return text if text == "auto" else listed_numbers(float)(text)


def settings(options, names=_ALL):
    """The values of the options that `add_settings` added, by the settings' names."""
    return {about.name: getattr(options, cli_name(about)) for about in fields(Settings) if about.name in names}
