"""What the README and the notebooks show is what runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import d2lmgpu as d2l

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run_python(code):
    """In a process of its own, without a window; returns what it printed."""
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readmes_program():
    program, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    quick = program.replace("= d2l.load_fashion_mnist()", "= [part[:3000] for part in d2l.load_fashion_mnist()]")
    assert quick != program
    assert 0 < float(run_python(quick)) < 1


def test_the_readmes_training_step_is_the_real_one():
    _, shown = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    source = (ROOT / "d2lmgpu" / "parallel" / "data.py").read_text(encoding="utf-8")
    real = [line.split("#")[0].strip() for line in source[source.index("def train_batch") :].splitlines()]
    for line in shown.splitlines():
        assert line.split("#")[0].strip() in real


def test_the_readmes_error():
    shown = re.search(r"DeviceMismatchError: (.*?)```", README, re.DOTALL)[1]
    with pytest.raises(d2l.DeviceMismatchError) as error:
        d2l.put([1.0, 2.0], d2l.cpu(0)) + d2l.put([3.0, 4.0], d2l.cpu(1))
    assert shown.split() == str(error.value).split()


def test_the_readmes_links():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links and all((ROOT / link).exists() for link in links)


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code")
    run_python("import matplotlib\nmatplotlib.use('Agg')\n" + code.replace("%matplotlib inline", ""))
