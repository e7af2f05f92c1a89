"""The command line: argparse, whose errors are one line and name what was perhaps meant."""

import argparse

from ..arguments import perhaps_meant, shown


def parse(modules, arguments):
    """The options of a command line, of the commands of ``modules``, each with its ``add_to``.

    As argparse does it, which loses files that come after an option that comes after the checkpoint.
    """
    parser, commands = make_parser(modules)
    options, rest = parser.parse_known_args(arguments)
    if any(word.startswith("-") for word in rest) or (rest and not hasattr(options, "files")):
        commands.choices[options.name].refuse(rest)
    if rest:
        options.files += rest
    return options


def make_parser(modules):
    """The parser, and what has those of the commands, by name, as its ``choices``."""
    parser = _Parser(prog="d2lmgpu", description="Train LeNet on several devices, from scratch.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND", parser_class=_Parser)
    for module in modules:
        module.add_to(commands)
    return parser, commands


def _version():
    from d2lmgpu import __version__

    return f"d2lmgpu {__version__}"


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """Exit code 2, after one line."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")

    def refuse(self, words):
        """Say that there are no such arguments, of options only these, and which option the first may have been."""
        options = [word for word in words if word.startswith("-")]
        words = options or words
        meant = _meant(words[0].split("=")[0], self._option_string_actions) if options else ""
        self.error(f"unknown argument{'s' * (len(words) > 1)} {', '.join(map(shown, words))}{meant}")

    def _check_value(self, action, value):  # argparse's own, which tells an unknown command
        if action.choices is not None and value not in action.choices:
            known = ", ".join(action.choices)
            self.error(f"{shown(value)} is no command; choose from {known}{_meant(value, action.choices)}")


def _meant(word, known):
    return perhaps_meant(word.replace("_", "-"), known)  # as Python has it, and as options have
