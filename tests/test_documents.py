"""What the README and the notebooks show is what runs."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def program_with(text):
    """The one of the README's programs that has this text in it."""
    (program,) = [program for program in PROGRAMS if text in program]
    return program


def run_python(code, folder=ROOT):
    """In a process of its own; returns what it printed."""
    command = [sys.executable, "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, encoding="utf-8", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readmes_program():
    program, *_ = PROGRAMS
    quick = program.replace("= d2l.load_fashion_mnist()", "= [part[:3000] for part in d2l.load_fashion_mnist()]")
    assert quick != program
    assert 0 < float(run_python(quick)) < 1


def test_the_readmes_training_step_is_the_real_one():
    _, shown, *_ = PROGRAMS
    source = (ROOT / "d2lmgpu" / "parallel" / "data.py").read_text(encoding="utf-8")
    real = [line.split("#")[0].strip() for line in source[source.index("def train_batch") :].splitlines()]
    for line in shown.splitlines():
        assert line.split("#")[0].strip() in real


def test_the_readmes_schedule(tmp_path):
    _, _, program, *_ = PROGRAMS
    proof, seconds = run_python(program, tmp_path).splitlines()
    assert proof == "Proof(steps=4, sent=[3000, 1000, 1000, 1000], ratio=2.0)"
    assert float(seconds) == pytest.approx(3 * (5e-6 + 4000 / 16e9) + 5e-6 + 3 * 4000 / 16e9)
    assert (tmp_path / "star.png").read_bytes().startswith(b"\x89PNG")
    shown = re.search(r"`prove` answers: `(.*?)`", README, re.DOTALL)[1]
    wrong = program[: program.index("print")].replace('"copy"', '"add"') + "prove(star(4, 1000), 4, 1000)"
    with pytest.raises(AssertionError) as error:
        run_python(wrong, tmp_path)
    assert " ".join(shown.split()) in str(error.value)


def test_the_readmes_table_of_algorithms():
    names = re.findall(r"^\| `(\w+)`.*\|.*\|.*\|.*\|$", README, re.MULTILINE)
    assert names == [name for name in ALGORITHMS if name != "none"]


def test_the_readmes_own_network():
    program = program_with("sequential(")
    data = "data = [part[:600] for part in d2l.load_fashion_mnist()]\n"
    quick = program.replace("devices = ", data + "devices = ").replace("lr=0.05,", "lr=0.05, data=data,")
    lines = run_python(quick + "print(history.loads, len(params))").splitlines()
    assert lines[0].startswith("epoch 1/1: loss ") and lines[-1] == "[1.0, 1.0, 0.5] 8"


def test_the_readmes_callback():
    data = "data = [part[:2000] for part in d2l.load_fashion_mnist()]\n"
    quick = program_with("class Enough").replace("> 0.85", "> 0.3").replace("class Enough", data + "class Enough")
    quick = quick.replace("callbacks=", "batch_size=32, lr=0.05, data=data, callbacks=")
    lines = run_python(quick).splitlines()
    assert len([line for line in lines if line.startswith("epoch ")]) < 10 and "stopped after 63 steps" in lines[-2]
    assert lines[-1].startswith("devices worked ")


@pytest.mark.long
def test_the_readmes_preprocessing():
    quick = (
        program_with("preprocess")
        .replace("= d2l.load_fashion_mnist()", "= data")
        .replace('init="he"', 'init="he", data=data')
    )
    data = "data = [part[:600] for part in d2l.load_fashion_mnist()]\n"
    quick = quick.replace("devices = ", data + "devices = ").replace("X_shards, y_shards =", "shards =")
    lines = run_python(quick + "        print([len(y) for y in shards[1]], epoch)\n").splitlines()
    assert len([line for line in lines if line.startswith("epoch ")]) == 10
    assert lines[10:] == [f"{sizes} {epoch}" for epoch in (0, 1) for sizes in ([128, 128], [128, 128], [44, 44])]


@pytest.mark.long
def test_the_readmes_sweep(tmp_path):
    """As a file, since the workers import it."""
    quick = program_with("d2l.sweep(").replace("num_epochs=3", "num_epochs=1, limit=200, batch_size=50")
    quick = quick.replace("lr=[0.05, 0.1, 0.2], seed=[0, 1]", "lr=[0.05, 0.1], seed=[0]")
    (tmp_path / "program.py").write_text(quick, encoding="utf-8")
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\n4 done\nbest: devices " in done.stdout and len(d2l.load_sweep(tmp_path / "sweep.json")) == 4
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_the_readmes_error():
    shown = re.search(r"DeviceMismatchError: (.*?)```", README, re.DOTALL)[1]
    with pytest.raises(d2l.DeviceMismatchError) as error:
        d2l.put([1.0, 2.0], d2l.cpu(0)) + d2l.put([3.0, 4.0], d2l.cpu(1))
    assert shown.split() == str(error.value).split()


def test_the_readmes_links():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links and all((ROOT / link).exists() for link in links)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebooks_first_cells(notebook, monkeypatch):
    """The first two with code, in the quick setting."""
    run_notebook(notebook, monkeypatch, cells=2)


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(notebook, monkeypatch):
    """From start to end, in the quick setting: up to half a minute each."""
    run_notebook(notebook, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(("number", "cards"), [("01", 1), ("03", 2), ("06", 2)])
def test_notebook_on_gpus(number, cards, monkeypatch):
    """Unchanged on a GPU, or two, of the stand-in: some that train little, which it does slowly."""
    (notebook,) = (path for path in NOTEBOOKS if path.name.startswith(number))
    standin = f"import standin_cupy\nstandin_cupy.install(pytest.MonkeyPatch(), cards={cards})\n"
    begin = f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\nimport pytest\n{standin}"
    end = "assert d2l.try_gpu(0).kind == 'gpu'\n"
    run_notebook(notebook, monkeypatch, begin, end)


def run_notebook(notebook, monkeypatch, begin="", end="", cells=None):
    monkeypatch.setenv("D2LMGPU_QUICK", "1")
    code = "".join([source + "\n" for kind, source in cells_of(notebook) if kind == "code"][:cells])
    run_python(begin + "import matplotlib\nmatplotlib.use('Agg')\n" + code + end, ROOT / "notebooks")


def cells_of(notebook):
    """Kind and source of each cell, without the line that is IPython's own."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        yield cell["cell_type"], "".join(cell["source"]).replace("%matplotlib inline", "")


def test_a_reader_meets_no_name_before_it_is_explained():
    """Every name of the package that a notebook's code uses stands, marked as code, in a text before it."""
    explained, early = set(), []
    for notebook in NOTEBOOKS:
        imported = {}  # name here: name in the package
        for kind, source in cells_of(notebook):
            if kind == "markdown":
                explained.update(*(re.findall(r"\w+", code) for code in re.findall(r"`([^`]+)`", source)))
                continue
            nodes = list(ast.walk(ast.parse(source)))
            for node in nodes:
                if isinstance(node, ast.ImportFrom) and node.module.startswith("d2lmgpu"):
                    imported |= {alias.asname or alias.name: alias.name for alias in node.names}
            used = {imported[node.id] for node in nodes if isinstance(node, ast.Name) and node.id in imported}
            attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
            used |= {node.attr for node in attributes if ast.unparse(node.value) == "d2l"}
            early += [f"{notebook.stem}: {name}" for name in sorted(used - explained)]
    assert len(explained) > 200 and not early
