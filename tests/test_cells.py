"""Notebooks' cells are read as IPython reads them: what it would define is graded, and what it cannot read is named."""

import inspect
import json
import os
import random
import runpy
import subprocess
import sys

import pytest
from test_grade import notebook

from d2lmgpu.exercises import judge
from d2lmgpu.exercises.submissions import source_of

pytest.importorskip("IPython", reason="IPython is not installed (pip install -e '.[test]')")

DEFINITIONS = [  # of FUN, which returns NUM or so, beside what only IPython can read, and what only looks so
    "def FUN(): return NUM",
    "def FUN():\n    return (NUM0\n% 7)",
    "def FUN():\n    x = NUM \\\n% 3\n    return x",
    'def FUN():\n    return """a\n%time NUM\n  !ls\n? x\n   \n>>> NUM\n"""',
    'text = """\n>>> NUM\n   \n"""\ndef FUN(text=text): return text',
    "def FUN(x=f'NUM? {3 % 2}?'):  # is it? %time !ls\n    return x",
    "x = !echo NUM\ndef FUN(): return NUM",
    "x, y = %time (NUM, 3)\ndef FUN():\n    !echo NUM\n    return NUM",
    "!echo a \\\n   b\n%who\n?len\nlen??\ndef FUN(): return NUM",
    "def FUN():\n    %time y = NUM\n    y = %time NUM + 1\n    return y",
    "%time import math; half = 0.5\ndef FUN(): return math.floor(NUM + half)",
    "%time FUN = lambda: NUM",
    "try:\n    import nothing_there\nexcept ImportError:\n    def FUN(): return NUM",
    "try:\n    %who\n    import math as m\nexcept ImportError:\n    m = 0\nelse:\n    def FUN(m=m): return m.pi",
    "FUN = 3\nif NUM % 2:\n    def FUN(): ...\nelif NUM % 3:\n    %who\n    FUN = lambda: 0\nelse:\n    FUN = len",
    "if False:\n    print(1)\n    def FUN(): return 1\nelse:\n    def FUN(): return NUM",
    "for i in range(2):\n    !echo\n    def FUN(): return NUM",
    "import contextlib\nwith contextlib.nullcontext():\n    %who\n    def FUN(): return NUM",
    "FUN_a, (b, *c) = NUM, (2, 3, 4)\nFUN_d: int = FUN_a + 1\nFUN_d *= 2\ndef FUN(): return FUN_a, FUN_d",
    "def FUN_own(x): return x + NUM\nfrom functools import partial\nFUN = partial(FUN_own, 3)\nFUN_too = FUN",
    "import functools\n@functools.lru_cache(None)\ndef FUN(): return __name__, display(NUM)",
    "def FUN(): return NUM\nFUN?",
    "%matplotlib --list\n\n\ndef FUN(): return NUM\n# a? b?",
    "def FUN(: return NUM",
    "def FUN(): return NUM\n'",
    "def FUN(): return NUM\n<<<<<<< HEAD\ndef FUN_b(): ...",
    "def FUN(): return NUM\nx = = !ls",
]
AROUND = {  # what becomes of a cell's text
    "%%time\n": 2,
    "\n\n%%capture out\n\n%%time\n": 2,
    "%%prun -q\n": 1,
    "%%writefile x.txt\n": 1,
    "%%timeit -n1 -r1\n": 1,
    "%%html\n": 1,
    "%%bash\nexit\n": 1,
    "# %%time\n": 1,
    "%%nothing_of_the_kind\n": 1,
    "    ": 3,
    ">>> ": 2,
    "In [3]: ": 2,
    "": 12,
}
IN_IPYTHON = """
import json
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
for cell in json.load(open("cells.json")):
    shell.run_cell(cell)
json.dump(returned(shell.user_ns), open("found.json", "w"))
"""


def returned(names):
    """What the functions return whose names begin with f_, in words, or the names of the errors that they raise."""
    found = {}
    for name in sorted(name for name in names if name.startswith("f_") and callable(names[name])):
        try:
            found[name] = repr(names[name]())
        except Exception as error:
            found[name] = type(error).__name__
    return found


def random_cell(rng, number):
    """A cell's text, with one to three of the definitions, each under a name of its own."""
    parts = rng.choices(DEFINITIONS, k=rng.choice([1, 1, 2, 3]))
    names = [
        part.replace("FUN", f"f_{number}_{i}").replace("NUM", str(rng.randrange(1, 99))) for i, part in enumerate(parts)
    ]
    text = "\n".join(names)
    (around,) = rng.choices([*AROUND], [*AROUND.values()])
    after = "" if around.endswith("\n") else {">>> ": "... ", "In [3]: ": "   ...: "}.get(around, around)
    return around + text.replace("\n", f"\n{after}")


def read(folder, content):
    """What `source_of` returns of a notebook, of which ``content`` is the text."""
    (folder / "a.ipynb").write_bytes(content if isinstance(content, bytes) else content.encode())
    return source_of(folder / "a.ipynb")


def test_random_cells_define_what_they_define_in_ipython(tmp_path):
    rng = random.Random(60)
    cells = [random_cell(rng, number) for number in range(200)]
    (tmp_path / "cells.json").write_text(json.dumps(cells))
    program = inspect.getsource(returned) + IN_IPYTHON
    known = os.environ | {"IPYTHONDIR": str(tmp_path / "ipython")}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = json.loads((tmp_path / "found.json").read_text())
    source, *_ = read(tmp_path, notebook(*cells))
    (tmp_path / "a.py").write_text(source)
    found = returned(runpy.run_path(str(tmp_path / "a.py")))
    for number, cell in enumerate(cells):
        own, theirs = ({k: v for k, v in each.items() if k.startswith(f"f_{number}_")} for each in (found, expected))
        assert own == theirs, cell
    assert len(expected) > 150


CUT = "def cut(n, k):\n    return [(i * n // k, (i + 1) * n // k) for i in range(k)]\n"
CELL = {"cell_type": "code", "source": CUT}
OTHER = CUT.replace("cut", "repaired")


@pytest.mark.parametrize(
    "content",
    {
        "after_colab": notebook(
            "#@title Hi\n!pip install d2lmgpu\n%cd /content\nfrom google.colab import drive\n" + CUT
        ),
        "awaits": notebook("await something()\nasync with other() as x:\n    pass\n" + CUT),
        "bom": b"\xef\xbb\xbf" + notebook(CUT).encode(),
        "calls_ipython": notebook("!ls\nfrom IPython import get_ipython\n" + CUT.replace("    ", "    !ls\n    ")),
        "checks_another_name": notebook("def cut(n, k): ...", OTHER + "check('cut', repaired);"),
        "checks_in_a_condition": notebook(
            "def cut(n, k): ...", OTHER + "if d2l.exercises.check('cut', repaired): 1 / 0"
        ),
        "checks_a_lambda": notebook(OTHER, "%%time\ncheck(answer=lambda n, k: repaired(n, k), name='cut')"),
        "continued_by_crlf": notebook("!ls \\\r\n  .\r\n" + CUT.replace("\n", "\r\n")),
        "defined_later": notebook(
            CUT.replace("(n, k)", "(n: Sizes, k) -> list[Pair]"), "Pair = namedtuple('Pair', 'a b')"
        ),
        "form_feeds": notebook("\f" + CUT),
        "its_name_is_used_for_a_number": notebook(CUT, "cut = 3\ncut *= -2\ncut = [cut]"),
        "no_type": json.dumps(
            {"cells": [{"source": CUT}, {"cell_type": "raw", "source": "def cut(: %"}, {"source": []}]}
        ),
        "old": json.dumps(
            {"worksheets": [{"cells": [{"cell_type": "heading"}, {"cell_type": "code", "input": [CUT]}]}]}
        ),
        "reads_from_the_future": notebook("import os\nfrom __future__ import division, annotations\n" + CUT),
        "some_are_broken": notebook("def (", "x = '\0'", "<<<<<<< HEAD\n", "\ud800", CUT, "def f():\n nonlocal x\n"),
        "text": json.dumps({"cells": [{"cell_type": "markdown", "source": "%%html"}, CELL]}),
        "utf_16": notebook("é = 3\n" + CUT).encode("utf-16"),
    }.items(),
    ids=lambda item: item[0],
)
def test_an_answer_in_an_odd_notebook(tmp_path, content):
    source, defined, checked, unread = read(tmp_path, content[1])
    assert "cut" in defined and ("cut" in checked) == content[0].startswith("checks")
    assert len(unread) == 5 * (content[0] == "some_are_broken")
    (tmp_path / "a.py").write_text(source, encoding="utf-8")
    assert judge("cut", runpy.run_path(str(tmp_path / "a.py"))["cut"]).right


@pytest.mark.parametrize(
    "cell, sentence",
    [
        ("def f():\n    pass\ndef broken(:", "cell 2, line 3: SyntaxError: invalid syntax: def broken(:"),
        ("\n\n!ls \\\n  .\n\nx = (", "cell 2, line 6: SyntaxError: '(' was never closed: x = ("),
        ("%%time\nx = 1\n y = 2", "cell 2, line 3: IndentationError: unexpected indent: y = 2"),
        ("def f():\n    nonlocal x", "cell 2, line 2: SyntaxError: no binding for nonlocal 'x' found: nonlocal x"),
        ("x = '\0'", "cell 2: "),
    ],
)
def test_a_cell_that_cannot_be_read_is_named(tmp_path, cell, sentence):
    _, defined, _, unread = read(tmp_path, notebook(CUT, cell))
    assert "cut" in defined and len(unread) == 1 and unread[0].startswith(sentence) and unread[0].isprintable()


def test_without_ipython_cells_of_python_are_read(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    _, defined, _, unread = read(tmp_path, notebook(CUT, "def f():\n    return (7\n% 3)", "%time g()\ndef h(): ..."))
    assert {"cut", "f"} <= defined and "h" not in defined
    assert unread == [
        "cell 3, line 1: SyntaxError: invalid syntax: %time g(); if this is meant for IPython, that is not installed: "
        "pip install ipython"
    ]
