"""Cells in the reader's browser: what the page's worker (site/tab/worker.js) calls, in Python, to run one.

Whatever a cell shows is a line of JSON on standard output, a dict with one of these keys:

    text     what was printed, or the value of the last line
    html     a value's own HTML, such as a player's
    png      a figure, in base64; with ``width``, its width in pixels
    error    a traceback
    files    the small files of the course's folder that the cell has changed, by name, such as mine.py
"""

import ast
import base64
import contextlib
import io
import itertools
import json
import linecache
import re
import sys
import traceback
import warnings
from pathlib import Path

COMMAND = re.compile(r"[%!]{1,2}[a-z].*")
"""A command for IPython, such as %matplotlib inline, which is left out where Python cannot read it."""

LARGEST = 200_000
"""The most bytes of a file that the page keeps."""

SHARPNESS = 1.5
"""Pixels of a figure for each of the page's."""

_runs = itertools.count(2)  # of cells that are run again
_known = {}  # the files of the course's folder, as the page has them


def tell(**shown):
    """Give the worker a line."""
    sys.__stdout__.write(json.dumps(shown) + "\n")
    sys.__stdout__.flush()


@contextlib.contextmanager
def heard():
    """In the ``with`` block: a list that gets what is told, instead of the worker."""
    global tell
    told, before = [], tell
    tell = lambda **shown: told.append(shown)  # noqa: E731
    try:
        yield told
    finally:
        tell = before


class Printed(io.TextIOBase):
    """Standard output, and standard error, of cells: whole lines are told at once."""

    def __init__(self):
        self._text = ""

    def writable(self):
        return True

    def write(self, text):
        self._text += text
        end = max(self._text.rfind("\n"), self._text.rfind("\r")) + 1
        if end:
            tell(text=self._text[:end])
            self._text = self._text[end:]
        return len(text)

    def flush(self):
        if self._text:
            tell(text=self._text)
            self._text = ""


def begin():
    """Before the first cell of a page."""
    from d2lmgpu import exercises
    from d2lmgpu.exercises.course import MINE

    sys.path.insert(0, str(Path.cwd()))  # for mine.py
    if not Path(exercises.FILE).exists():
        Path(exercises.FILE).write_text(MINE, "utf-8")
    warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
    warnings.filterwarnings("ignore", "Unable to import Axes3D")  # which is left out
    _known.update(_files())
    exercises.begin()


def run(source, name="cell", names=None):
    """Run a cell's source in the namespace ``names``, and tell what it shows. Returns whether it raised nothing."""
    names = vars(sys.modules["__main__"]) if names is None else names
    source, filename = without_commands(source), f"<{name}>"
    if filename in linecache.cache:  # functions of an earlier run keep their source
        filename = f"<{name}, run {next(_runs)}>"
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename  # for inspect.getsource
    printed = Printed()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            show(_value(source, filename, names))
            show_figures()
            return True
        except BaseException as error:
            printed.flush()
            tell(error=told(error))
            return False
        finally:
            printed.flush()
            _tell_files()


def without_commands(source):
    """A cell's source without lines that only IPython can read; in a block, ``pass`` stands for them."""
    lines, left_out = source.split("\n"), set()
    while True:
        try:
            ast.parse(text := "\n".join(lines))
            return text
        except SyntaxError as error:
            number = (error.lineno or 1) - 1
            if number in left_out:  # where there is no block
                lines[number] = ""
            elif number < len(lines) and COMMAND.match(lines[number].lstrip()):
                lines[number] = COMMAND.sub("pass", lines[number])
            else:
                return text
            left_out ^= {number}
        except ValueError:  # a character that no program may have
            return text


def _value(source, filename, names):
    """Execute the source; the value of its last line if that is an expression, and does not end with a semicolon."""
    body = ast.parse(source, filename).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), filename, "exec"), names)
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), filename, "eval"), names)
    return None if source.rstrip().endswith(";") else value


def show(value):
    """Tell what a notebook would show of a value."""
    if value is not None:
        html = getattr(value, "_repr_html_", lambda: None)()
        if html is None:
            print(repr(value))
        else:
            sys.stdout.flush()
            tell(html=html)


def show_figures():
    """Tell the open figures of pyplot, and close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()] if pyplot else []
    sys.stdout.flush()
    for figure in figures:
        pyplot.close(figure)
        show_figure(figure)


def show_figure(figure):
    """Tell a figure of Matplotlib."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=figure.dpi * SHARPNESS, bbox_inches="tight")
    width = int.from_bytes(file.getvalue()[16:20], "big")  # where a PNG has it
    tell(png=base64.b64encode(file.getvalue()).decode(), width=round(width / SHARPNESS))


def told(error, since=None):
    """A traceback's text, from the cell on, or from the first line of a file ``since`` on; without one, the message."""
    trace = error.__traceback__
    while trace is not None and _is_before(trace.tb_frame.f_code.co_filename, since):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def _is_before(file, since):
    return file == __file__ if since is None else file != since


def _files():
    """The small text files of the current folder, by name."""
    paths = [path for path in sorted(Path().iterdir()) if path.suffix in {".py", ".json"} and path.is_file()]
    return {path.name: path.read_text("utf-8") for path in paths if path.stat().st_size <= LARGEST}


def _tell_files():
    changed = {name: text for name, text in _files().items() if _known.get(name) != text}
    if changed:
        _known.update(changed)
        tell(files=changed)
