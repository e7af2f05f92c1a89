"""The tables of these pages that are made from the code: rooms, settings, options, names.

    python docs/tables.py

writes them anew, each between its marks: ``<!-- table: settings -->`` … ``<!-- end of table -->``. The website has
them as the code is when it is built, and beside the rooms all their files, which would be too many for a page that is
kept in the repository.
"""

import ast
import functools
import re
import sys
from dataclasses import fields
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "d2lmgpu"
sys.path[:0] = [str(HERE.parent)]

MARKED = re.compile(r"(<!-- table: (\w+) ?(.*?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
FILES = "<!-- the files -->"
"""Where the website has the tables of all files."""


def table(head, rows):
    """A table of Markdown."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines, ""])


@functools.cache
def _module(file):
    """The first sentence of a module's docstring, as Markdown, and what it imports from the package itself."""
    tree = ast.parse(file.read_text("utf-8"))
    text = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split()).replace("``", "`")
    depth = len(file.relative_to(PACKAGE).parts)  # the dots of an import from the package itself
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            imported |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", text)[0], imported


def first_sentence(file):
    return _module(file)[0]


def rooms():
    """The rooms by floors, from the ground up: each imports only rooms on floors below its own."""
    rows = ((str(_floor(room)), f"`{room}/`", first_sentence(_main_file(room))) for room in _rooms())
    return table(("floor", "room", "what it is"), rows)


def files():
    """What each room imports, and its files, for the website."""
    text, imports = "", imports_of_rooms()
    for room in _rooms():
        text += f"### `{room}`\n\n{first_sentence(_main_file(room))}\n\n"
        text += f"It imports {', '.join(f'`{name}`' for name in sorted(imports[room])) or 'no other room'}.\n\n"
        there = sorted(file for file in (PACKAGE / room).rglob("*.py") if file.name != "__init__.py")
        rows = [(f"`{file.relative_to(PACKAGE / room).as_posix()}`", first_sentence(file)) for file in there]
        text += table(("file", "what it is"), rows) + "\n" if rows else ""
    return text


def _main_file(room):
    return PACKAGE / room / "__init__.py"


def _floor(room):
    return 1 + max(map(_floor, imports_of_rooms()[room]), default=0)


def _rooms():
    """From the ground up: first those that import none, then those that import these, and so on."""
    return sorted(imports_of_rooms(), key=lambda room: (_floor(room), room))


@functools.cache
def imports_of_rooms():
    """By a room, which is a folder of the package, the rooms that it imports, also within functions."""
    names = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    return {
        room: set().union(*(_module(file)[1] for file in (PACKAGE / room).rglob("*.py"))) & names - {room}
        for room in names
    }


def settings():
    """The fields of `Settings`."""
    from d2lmgpu.training.checks import meaning

    actions = {action.dest: action for action in _parsers()["train"]._actions}
    rows = []
    for about in _settings():
        action = actions[about.metadata["called"] or about.name]
        row = f"`{about.name}`", f"`{about.default!r}`".replace("'", '"'), f"`{action.option_strings[0]}`"
        rows.append((*row, _marked_up(meaning(about))))
    return table(("name", "default", "option", "meaning"), rows)


def options(command):
    """A command's own options; then which it has of those that several commands have, and of the settings."""
    kinds = {"own": [], "common": [], "settings": []}
    for row in _options(command):
        kinds["settings" if row in _settings_options() else "common" if row in _common_options() else "own"].append(row)
    rows = kinds["own"]
    if kinds["common"]:
        rows += [(_listed(kinds["common"]), "", "see [below](#options-that-several-commands-have)")]
    if kinds["settings"]:
        of_all = len(kinds["settings"]) == len(_settings_options())
        rows += [("all of the settings" if of_all else _listed(kinds["settings"]), "", "see [Settings](settings.md)")]
    return table(("option", "default", "meaning"), rows)


def common():
    """The options that several commands have, but those that are settings."""
    return table(("option", "default", "meaning"), _common_options())


@functools.cache
def _options(command):
    return [_option(action) for action in _parsers()[command]._actions if action.dest != "help"]


@functools.cache
def _common_options():
    rows = [row for command in _parsers() for row in _options(command) if row not in _settings_options()]
    return [row for row in dict.fromkeys(rows) if rows.count(row) > 1]


@functools.cache
def _settings_options():
    names = {about.metadata["called"] or about.name for about in _settings()}
    return [_option(action) for action in _parsers()["train"]._actions if action.dest in names]


def _settings():
    from d2lmgpu import Settings

    return fields(Settings)


def _listed(rows):
    """The names alone, each as code."""
    return ", ".join(f"`{re.split('[ `]', shown.strip('`'))[0]}`" for shown, _, _ in rows)


def names(source):
    """What a source calls otherwise, of d2lmgpu/base/names.txt."""
    from d2lmgpu.base.names import names as by_source

    rows = (
        (_each_as_code(row.elsewhere), _each_as_code(_without_options(row)), _marked_up(row.note))
        for row in by_source()[source]
    )
    return table(("there", "here", ""), rows)


def _without_options(row):
    """What a row has here; options of the command only if its note explains each name, or if there is nothing else."""
    names = row.here.split(", ")
    return ", ".join([name for name in names if ";" in row.note or not name.startswith("--")] or names)


def _each_as_code(listed):
    return ", ".join(f"`{name}`" for name in listed.split(", ") if name)


@functools.cache
def _parsers():
    from d2lmgpu import cli
    from d2lmgpu.cli.options import make_parser

    return make_parser(cli.COMMANDS)[1].choices


def _names(action):
    return action.option_strings or [action.metavar]


def _option(action):
    """A row: how the option is typed, its default, which its help tells last, and what else the help says."""
    shown = ", ".join(f"`{name}`" for name in _names(action))
    if action.option_strings and action.metavar:
        shown = f"`{_names(action)[0]} {action.metavar}`"
    meaning, default = re.fullmatch(r"(.*?)(?:(?: \(|; )default: ([^()]*)\)?)?", action.help).groups()
    return shown, _marked_up(default or ""), _marked_up(meaning)


def _marked_up(text):
    """Options as code: of two dashes in a text Sphinx makes one."""
    return re.sub(r"(?<![\w`-])--[\w-]+", r"`\g<0>`", text)


TABLES = {"rooms": rooms, "settings": settings, "options": options, "common": common, "names": names}


def filled(text):
    """A page's text with its tables made anew."""
    return MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]](*found[3].split())}\n{found[4]}", text)


if __name__ == "__main__":
    for page in HERE.glob("*.md"):
        text = page.read_text("utf-8")
        if filled(text) != text:
            page.write_text(filled(text), "utf-8")
            print(page.name)
