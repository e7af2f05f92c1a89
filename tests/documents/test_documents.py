"""What the README, the pages in docs/ and the notebooks show is what runs."""

import ast
import inspect
import json
import re
import shlex
import subprocess
import sys

import matplotlib.pyplot
import pytest
from conftest import long
from PIL import Image
from shown import PROGRAMS, ROOT, SHOWN, program_with, run_python
from site_course import core

import d2lmgpu as d2l
from d2lmgpu.cli import COMMANDS, parse
from d2lmgpu.data import fashion_mnist

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LITTLE = """import sys, d2lmgpu
files = sys.modules["d2lmgpu.data.fashion_mnist"]
files.read_idx = lambda path, read=files.read_idx: read(path)[:200]
"""
"""Has Fashion-MNIST with 200 training and 200 test images, for what stands after it."""

TESTED_APART = "def star", "d2l.plot_sweep("
ELSEWHERE = "MPIPoolExecutor() as", "get_executor() as"
"""In test_sweep.py."""

TESTED_TOGETHER = {  # what is in a program: the end of what it prints
    "loss = d2l.train_batch(": r"^0\.\d+\n",
    "BatchNorm, Conv2d": r"epoch 1/1: loss .*\n",
    "def flip": r"(epoch \d+/10: .*\n){10}",
    "history.phases": r"epoch 3/3: .*\n(\[0\.\d+, 0\.\d+, 0\.\d+\] ?){2}\n\{'data': .*'evaluate': .*\}\n",
    "transfer.nbytes": r"\[2\. 4\.\]\nhost cpu\(0\) 16\ncpu\(0\) cpu\(1\) 16\ncpu\(1\) host 16\n",
    "class Enough": r"(epoch \d+/10: .*\n)+devices worked .*\n",
    "copy.deepcopy(": r"32 cpu\(0\) cpu\(1\)\nTrue\n",
    "d2l.Animator(": r"(epoch \d: train loss .*, test acc 0\.\d+\n){3}test acc: 0\.\d\d, \d+\.\d sec/epoch on .*\n",
    "def network(input_shape, classes)": r"^",
    "def absolute": r"epoch 1/2: loss .*epoch 2/2: .*\n\[0\.\d+ +0\.\d+ *\]\n",
    "def top_3": r"epoch 1/2: .*epoch 2/2: .*\[0\.\d+, 0\.\d+\] of the test set\n\{'accuracy': .*, 'top 3': .*\}\n",
    "second.model.with_classes": r"(epoch 1/1: .*\n){3}\[0\.\d+\]\n",
    "model.summary()": r"Dense.*\n0\.\d+\n",
    "my data parallelism": r"\[\d+, \d+\]\nepoch 1/1: .*\n",
    "my zero1": r"\[5, 5, 5\]\nepoch 1/1: .*\n",
    "def one_f_one_b": r"\[\d+, \d+\]\n0\.1111\d*\nepoch 1/1: .*\n",
    "write_html": r"^",
    "estimate_costs": r"^\d+\.\d+ seconds; devices compute \[[\d.]+, [\d.]+\] of the time\n",
    "d2l.train(d2l.cluster()": r"epoch 1/1: loss .*\n",
    "plans.execute(": r"0 \d\.\d+\n",
    "full_switch(k, bandwidth=125e6": r"2 0\.00\d+\n4 0\.00\d+\n8 0\.00\d+\n",
    "cluster.across": r"0 \[\[1\. 1\. 1\.\] @cpu\(0\)\]\n",
    "import nvlink_mesh, rewired": r"<invented: \d+ steps, 264 µs simulated, 28\.4% .*>\n0\.00114\d+ 0\.00020\d+\n",
    "result.statistics": r"\[(\d ?){5}\] \[9 2 1 1 6\]\n0\.\d+\n",
}

ADDED = {"train": "--lr 0.02 --batch-size 50", "sweep": "--mode sequential --epochs 1 --limit 100 --lr 0.1 --seed 0"}
ADDED |= {"scaling": "--steps 1 --repeats 1 --batch-size 100", "allreduce": "--sizes 4K"}
"""What is added to a command, so that it is quick, and learns without diverging."""


def run(code, images=600):
    """In this process, which has imported the package already, with some images, in an empty folder."""
    with pytest.MonkeyPatch.context() as patch:
        read = fashion_mnist.read_idx
        patch.setattr(fashion_mnist, "read_idx", lambda path: read(path)[:images])
        exec(compile(code, "a program", "exec"), {"__name__": "__main__"})
    matplotlib.pyplot.close("all")


def test_every_program_is_tested():
    known = [*TESTED_APART, *TESTED_TOGETHER, *ELSEWHERE]
    assert [[text in program for text in known].count(True) for program in PROGRAMS] == [1] * len(known)
    assert program_with("loss = d2l.train_batch(") in SHOWN["README"]


IN_SHORT_RUNS = "loss = d2l.train_batch(", "model.summary()"


@pytest.mark.parametrize("text", [*IN_SHORT_RUNS, *long(*(t for t in TESTED_TOGETHER if t not in IN_SHORT_RUNS))])
def test_a_program(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(program_with(text))
    assert re.search(f"(?s){TESTED_TOGETHER[text]}$", capsys.readouterr().out)


def commands_shown():
    """The options of each command in the blocks of all pages, but of those that install; each once."""
    blocks = [block for text in SHOWN.values() for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]
    lines = dict.fromkeys(line for block in blocks for line in block.splitlines() if line.startswith("d2lmgpu "))
    return [shlex.split(line)[1:] for line in lines]


def test_commands_that_are_shown_are_understood():
    for command in commands_shown():
        parse(COMMANDS, command)


@pytest.mark.long
def test_commands_that_are_shown_do_it(tmp_path):
    """In their order and in one folder, with less data: some thirty, which take a while."""
    commands = commands_shown()
    for command in commands:
        if command[0] == "train" and "--epochs" not in command:
            command += ["--epochs", "3"]
        command += ADDED.get(command[0], "").split()
        if "--data" in command:
            command += ["--batch-size", "2"]  # of forty pictures
    for i in range(80):
        picture = tmp_path / "pictures" / ("train", "test")[i % 2] / ("cat", "dog")[i // 40] / f"{i}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 50), 3 * (150 * (i // 40) + i,)).save(picture)
    Image.new("RGB", (50, 40)).save(tmp_path / "photo.png")
    (tmp_path / "FOLDER" / "ada").mkdir(parents=True)
    (tmp_path / "FOLDER" / "ada" / "mine.py").write_text("def cut(n, k): ...\n")
    (tmp_path / "own.py").write_text(program_with("def network(input_shape, classes)"), encoding="utf-8")
    program = f"""
from d2lmgpu import cli
for command in {commands!r}:
    assert cli.main(command) == 0 or command == ["devices", "--check"], command  # without NCCL, for example
"""
    run_python(LITTLE + program, tmp_path)
    for name in {word for command in commands for word in command if word.endswith((".png", ".json", ".ckpt"))}:
        assert (tmp_path / name).exists(), name


def test_the_training_step_that_is_shown_is_the_real_one():
    source = (ROOT / "d2lmgpu" / "parallel" / "step.py").read_text(encoding="utf-8")
    blocks = re.findall(r"```py\n(.*?)```", SHOWN["step"], re.DOTALL)
    assert "".join(blocks).split() == source.split()
    assert all(block.rstrip("\n") in source for block in blocks)


def test_the_schedule_that_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    program = program_with("def star")
    run(program)
    proof, seconds = capsys.readouterr().out.splitlines()
    assert proof == "Proof(steps=4, sent=[3000, 1000, 1000, 1000], ratio=2.0)"
    assert float(seconds) == pytest.approx(3 * (5e-6 + 4000 / 16e9) + 5e-6 + 3 * 4000 / 16e9)
    assert (tmp_path / "star.png").read_bytes().startswith(b"\x89PNG")
    shown = re.search(r"`prove` answers: `(.*?)`", SHOWN["collectives"], re.DOTALL)[1]
    wrong = program[: program.index("print")].replace('"copy"', '"add"') + "prove(star(4, 1000), 4, 1000)"
    with pytest.raises(ValueError) as error:
        run(wrong)
    assert " ".join(shown.split()) in f"{type(error.value).__name__}: {error.value}"


@pytest.mark.long
def test_the_sweep_that_is_shown(tmp_path):
    """As a file, since the workers import it."""
    quick = program_with("d2l.plot_sweep(").replace("num_epochs=3", "num_epochs=1, limit=200, batch_size=50")
    (tmp_path / "program.py").write_text(LITTLE + quick.replace("seed=[0, 1]", "seed=[0]"), encoding="utf-8")
    subprocess.run([sys.executable, "program.py"], capture_output=True, cwd=tmp_path, check=True)
    assert len(d2l.load_sweep(tmp_path / "sweep.jsonl")) == 6
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_the_error_that_is_shown():
    shown = re.search(r"DeviceMismatchError: (.*?)```", SHOWN["devices"], re.DOTALL)[1]
    with pytest.raises(d2l.DeviceMismatchError) as error:
        d2l.put([1.0, 2.0], d2l.cpu(0)) + d2l.put([3.0, 4.0], d2l.cpu(1))
    assert shown.split() == str(error.value).split()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebooks_first_cells(notebook, monkeypatch):
    """The first two with code, in the quick setting. In this process, which has imported the package already."""
    monkeypatch.setenv("D2LMGPU_QUICK", "1")
    monkeypatch.chdir(notebook.parent)
    monkeypatch.syspath_prepend(notebook.parent)
    code = [source for kind, source in cells_of(notebook) if kind == "code"]
    exec("\n".join(code[:2]), {"__name__": "__main__"})
    matplotlib.pyplot.close("all")


CORE = core()
WHEN = [pytest.param(path, marks=pytest.mark.long if path.stem in CORE else pytest.mark.nightly) for path in NOTEBOOKS]


@pytest.mark.parametrize("notebook", WHEN, ids=lambda path: path.stem)
def test_notebook(notebook, monkeypatch):
    """From start to end, in the quick setting: up to half a minute each. Those of the core path run in CI."""
    run_notebook(notebook, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize(("number", "cards"), [("01", 1), ("03", 2), ("06", 2)])
def test_notebook_on_gpus(number, cards, monkeypatch):
    """Unchanged on a GPU, or two, of the stand-in: some that train little, which it does slowly."""
    (notebook,) = (path for path in NOTEBOOKS if path.name.startswith(f"{number}_"))
    standin = f"import standin_cupy\nstandin_cupy.install(pytest.MonkeyPatch(), cards={cards})\n"
    begin = f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\nimport pytest\n{standin}"
    end = "assert d2l.try_gpu(0).kind == 'gpu'\n"
    run_notebook(notebook, monkeypatch, begin, end)


def test_listings_in_a_notebook_are_the_code():
    """What `show` printed when notebook 2 and its second part were executed is what it would print now."""
    paths = [path for path in NOTEBOOKS if path.name.startswith("02")]
    cells = [cell for path in paths for cell in json.loads(path.read_text("utf-8"))["cells"]]
    shown = [cell for cell in cells if "".join(cell["source"]).startswith("show(")]
    assert len(shown) == 5
    for cell in shown:
        names = re.findall(r"d2l\.(\w+)", "".join(cell["source"]))
        expected = "".join(inspect.getsource(getattr(d2l, name)) + "\n" for name in names)
        assert "".join(cell["outputs"][0]["text"]) == expected


def run_notebook(notebook, monkeypatch, begin="", end=""):
    monkeypatch.setenv("D2LMGPU_QUICK", "1")
    code = "".join(source + "\n" for kind, source in cells_of(notebook) if kind == "code")
    run_python(begin + "import matplotlib\nmatplotlib.use('Agg')\n" + code + end, ROOT / "notebooks")


def cells_of(notebook, folds=False):
    """Kind and source of each cell, without the line that is IPython's own; with ``folds``, whether it is folded."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        found = cell["cell_type"], "".join(cell["source"]).replace("%matplotlib inline", "")
        yield (*found, "hide-input" in cell["metadata"].get("tags", ())) if folds else found


def test_a_reader_meets_no_name_before_it_is_explained():
    """Every name of the package that a notebook's code uses stands, marked as code, in a text before it.

    Of cells that are folded, such as those that plot, only the imports count.
    """
    explained, early = set(), []
    for notebook in NOTEBOOKS:
        imported = {}  # name here: name in the package
        for kind, source, folded in cells_of(notebook, True):
            if kind == "markdown":
                explained.update(*(re.findall(r"\w+", code) for code in re.findall(r"`([^`]+)`", source)))
                continue
            nodes = list(ast.walk(ast.parse(source)))
            for node in nodes:
                if isinstance(node, ast.ImportFrom) and node.module.startswith("d2lmgpu"):
                    imported |= {alias.asname or alias.name: alias.name for alias in node.names}
            if folded:
                continue
            used = {imported[node.id] for node in nodes if isinstance(node, ast.Name) and node.id in imported}
            attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
            used |= {node.attr for node in attributes if ast.unparse(node.value) == "d2l"}
            early += [f"{notebook.stem}: {name}" for name in sorted(used - explained)]
    assert len(explained) > 200 and not early
