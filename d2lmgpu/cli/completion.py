"""Completion in a shell, by argcomplete, of commands, options, and the names or files that options accept."""

import os

from ..devices.packages import optional


def complete(parser):
    """If a shell has started this process to ask how a command line can be completed, answer and exit.

    Without argcomplete, nothing happens.
    """
    argcomplete = "_ARGCOMPLETE" in os.environ and optional("argcomplete")[0]
    if argcomplete:
        argcomplete.autocomplete(parser, default_completer=_completions)


def _completions(prefix, action, parser, **more):
    """The names and files that an option's value may be if it begins with the ``prefix`` typed so far.

    In a list of names, separated by commas, the last one is completed.
    """
    from argcomplete import FilesCompleter

    if action.dest in ("exercise", "exercises"):
        from ..exercises import EXERCISES as names  # which no other command needs
    else:
        names = getattr(action, "names", ())
    before = prefix[: prefix.rfind(",") + 1]
    is_file = (action.option_strings or [action.metavar])[0] in {file.name for file in parser.get_default("named")}
    return [before + name for name in names] + (FilesCompleter()(prefix, **more) if is_file else [])
