"""Each extra of setup.cfg alone does what the pages say of it: in an environment that has nothing else."""

import ast
import json
import os
import shlex
import subprocess

import pytest
from conftest import few
from extras import ROOT, environment, extras

NEED_A_GPU = {"gpu", "gpu-cuda12"}


def imported_by_notebooks():
    for path in ROOT.glob("notebooks/**/*.ipynb"):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                lines = "".join(line for line in cell["source"] if not line.lstrip().startswith(("%", "!")))
                for node in ast.walk(ast.parse(lines)):
                    if isinstance(node, (ast.Import, ast.ImportFrom)):
                        yield ast.unparse(node)


EXPORT = 'd2l.load_model("run").export("a.safetensors"); print(*s.load_file("a.safetensors"))'
NAMES = {
    "QUICK": "train --environment cpu --limit 300 --epochs 1",
    "IMPORTS": shlex.quote("; ".join({*imported_by_notebooks()})),
    "EXPORT": shlex.quote(f"import d2lmgpu as d2l, safetensors.numpy as s; {EXPORT}"),
    "TESTS": " ".join(str(path) for name in ("shipped", "export") for path in ROOT.glob(f"tests/**/test_{name}.py")),
    "CLONE": str(ROOT),
}
WHAT_IT_DOES = {  # commands, in an empty folder
    "": """d2lmgpu QUICK --devices 2 --plot a.png --trace a.svg --json a.json
        d2lmgpu devices --check
        d2lmgpu sweep --limit 64 --epochs 1 --lr 0.1 --plot s.png
        d2lmgpu course mycourse
        d2lmgpu check allreduce CLONE/notebooks/solutions/04_copies_and_synchronisation.py
        d2lmgpu plan --split layers --devices 2 --html a.html""",
    "cluster": "mpiexec -n 2 d2lmgpu QUICK --environment parallel --init he",
    "notebooks": """d2lmgpu course mycourse
        jupyter lab --version
        jupyter nbconvert --to notebook --execute --inplace mycourse/01_devices.ipynb
        python -c IMPORTS
        python CLONE/docs/execute_notebooks.py none""",
    "tensorboard": "d2lmgpu QUICK --tensorboard runs",
    "export": "d2lmgpu QUICK --checkpoint run\npython -c EXPORT",
    "docs": "python CLONE/docs/site_slides.py slides",  # website.py builds the site
    "test": "pytest -q -p no:xdist -p no:cacheprovider TESTS",
    "lint": "ruff check CLONE\nruff format --check CLONE\nmypy --version",
}
FAILS = {  # by a command what it may say when it fails
    "python CLONE/docs/execute_notebooks.py none": "no such notebook: none",
    "python CLONE/docs/site_slides.py slides": "there is no Chromium",
}


def test_each_extra_is_tried():
    assert {*WHAT_IT_DOES} | NEED_A_GPU == {*extras()}


@pytest.mark.long
@pytest.mark.threads
@pytest.mark.packages
@pytest.mark.parametrize("extra", few(WHAT_IT_DOES, "", parts=2))
def test_an_extra_alone_does_what_its_page_says(tmp_path, extra):
    programs = environment(extra, tmp_path / "environment")
    unset = "PYTHONPATH VIRTUAL_ENV PYTEST_ADDOPTS".split()
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    variables |= {"PATH": f"{programs}:{os.environ['PATH']}", "D2LMGPU_QUICK": "1", "HOME": str(tmp_path)}
    for command in map(str.strip, WHAT_IT_DOES[extra].splitlines()):
        words = command
        for name, text in NAMES.items():
            words = words.replace(name, text)
        done = subprocess.run(
            shlex.split(words), cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300
        )
        said = FAILS.get(command, "")
        assert done.returncode == 0 or (said and said in done.stderr), (command, done.stdout, done.stderr)
