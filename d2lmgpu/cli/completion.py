"""Completion in a shell, by argcomplete: of commands, of options, and of the names or files that these take."""

import os


def complete(parser, commands):
    """If a shell has started this process to ask how its line may go on, answer, which ends the process.

    ``commands``: the action that has the parsers of the commands. Without argcomplete nothing happens.
    """
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        import argcomplete
    except ImportError:
        return
    files = argcomplete.FilesCompleter()
    for command in commands.choices.values():
        named = {file.name for file in command.get_default("named")}
        for action in command._actions:
            is_file = (action.option_strings or [action.metavar])[0] in named
            action.completer = _completer(action, files if is_file else None)
    argcomplete.autocomplete(parser)


def _completer(action, files):
    """A function of what was typed of an option's value. Where names have commas between, the last one goes on."""

    def complete(prefix, **more):
        names = _exercises() if action.dest in ("exercise", "exercises") else getattr(action, "names", ())
        before = prefix[: prefix.rfind(",") + 1]
        return [before + name for name in names] + (files(prefix, **more) if files else [])

    return complete


def _exercises():
    from ..exercises import EXERCISES  # which no other command needs

    return EXERCISES
