"""Completion in a shell, by argcomplete: of commands, of options, and of the names or files that these take."""

import os


def complete(parser):
    """If a shell has started this process to ask how its line may go on, answer, which ends the process.

    Without argcomplete nothing happens.
    """
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(parser, default_completer=_completions)


def _completions(prefix, action, parser, **more):
    """What may stand in the place of an option's value, of which the ``prefix`` was typed: names, and files.

    Where names have commas between, the last one goes on.
    """
    from argcomplete import FilesCompleter

    if action.dest in ("exercise", "exercises"):
        from ..exercises import EXERCISES as names  # which no other command needs
    else:
        names = getattr(action, "names", ())
    before = prefix[: prefix.rfind(",") + 1]
    is_file = (action.option_strings or [action.metavar])[0] in {file.name for file in parser.get_default("named")}
    return [before + name for name in names] + (FilesCompleter()(prefix, **more) if is_file else [])
