"""The command line: argparse, with one-line errors that suggest what was perhaps meant."""

import argparse

from .. import __version__
from ..base.names import perhaps_meant
from ..base.text import shortened, shown


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
