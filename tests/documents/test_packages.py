"""What is built from a clone: a wheel that trains without a network, an sdist whose tests run, and what they show.

Building takes half a minute, so that only what setup.py does to links is in every run.
"""

import functools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import d2lmgpu as d2l
from d2lmgpu.data.fashion_mnist import FILES

ROOT = Path(__file__).resolve().parents[2]
UNSEEN = "D2LMGPU_DATA PYTHONPATH PYTEST_ADDOPTS VIRTUAL_ENV".split()
"""Variables that would let a command see more than what is installed."""
BUILD = "import sys, setuptools.build_meta as backend; backend.build_{}(sys.argv[1])"


def test_links_of_the_readme_lead_to_the_repository():
    text = "[![badge](https://x.org/a.svg)](docs/a.md#b) ![a\npicture](notebooks/a.png) [d](docs) [e](#here)"
    links = re.findall(r"\]\(([^)\s]+)\)", runpy.run_path(str(ROOT / "setup.py"))["absolute"](text, "https://y.org"))
    places = "blob/main/docs/a.md#b", "raw/main/notebooks/a.png", "tree/main/docs"
    assert links == ["https://x.org/a.svg", *(f"https://y.org/{place}" for place in places), "#here"]


@functools.cache
def without_network():
    """What to begin a command with so that it has no network; nothing where the system does not permit that."""
    for words in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        if shutil.which(words[0]) and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    return []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function that runs a command in a folder, with no network and an empty home, and returns what it printed."""
    home = tmp_path_factory.mktemp("home")
    environment = {name: value for name, value in os.environ.items() if name not in UNSEEN}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PIP_NO_INDEX": "1"}
    environment |= dict.fromkeys(["http_proxy", "https_proxy"], "http://127.0.0.1:9")

    def run(folder, *command, **more):
        command = [*without_network(), *map(str, command)]
        done = subprocess.run(command, cwd=folder, env=environment | more, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    yield run
    assert not [path for path in home.rglob("*") if path.name in FILES], "nothing is downloaded"


@pytest.fixture(scope="module")
def source(tmp_path_factory, run):
    """The folder of an unpacked sdist, which is built of a copy of this one."""
    pytest.importorskip("setuptools", "70.1", reason="building needs setuptools 70.1, which builds wheels by itself")
    folder = tmp_path_factory.mktemp("sdist")
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").split()]
    shutil.copytree(ROOT, folder / "copy", ignore=shutil.ignore_patterns(".git", *ignored))
    run(folder / "copy", sys.executable, "-c", BUILD.format("sdist"), folder)
    (file,) = folder.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        archive.extractall(folder)
    return folder / file.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(source, run):
    run(source, sys.executable, "-c", BUILD.format("wheel"), source.parent)
    (file,) = source.parent.glob("*.whl")
    return file


@pytest.mark.long
@pytest.mark.packages
def test_an_installed_wheel_works_without_network(wheel, source, run, tmp_path):
    """In an environment that has the wheel, and else what this one has."""
    venv = tmp_path / "venv"
    run(tmp_path, sys.executable, "-m", "venv", "--without-pip", venv)
    run(tmp_path, sys.executable, *f"-m pip --python {venv} install --quiet --no-deps".split(), wheel)
    (library,) = venv.glob("lib/python*/site-packages")
    (library / "ours.pth").write_text(sysconfig.get_path("purelib"))
    program, share = venv / "bin" / "d2lmgpu", venv / "share" / "d2lmgpu"
    about = "import d2lmgpu; from d2lmgpu.data import fashion_mnist as f"
    about += "; print(d2lmgpu.__file__, *map(f.find_file, f.FILES), sep='\\n')"
    module, *files = run(tmp_path, venv / "bin" / "python", "-c", about).split()
    assert venv in Path(module).parents
    assert files == [str(share / "data" / "fashion-mnist" / name) for name in FILES]
    assert (share / "data" / "fashion-mnist" / "LICENSE").read_text().startswith("The MIT License")
    assert run(tmp_path, program, "--version") == f"d2lmgpu {d2l.__version__}\n"
    run(tmp_path, program, *"train --devices 2 --epochs 1 --limit 6000 --init he --json result.json".split())
    result = json.loads((tmp_path / "result.json").read_text())
    assert len(result["devices"]) == 2 and result["test_accuracy"][-1] > 0.3
    run(tmp_path, program, "course", "mycourse", "--json", "course.json")
    course = json.loads((tmp_path / "course.json").read_text())
    assert {f"data/fashion-mnist/{name}" for name in FILES} <= {*course["written"]}
    assert len(list((tmp_path / "mycourse").glob("*.ipynb"))) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    (solution,) = source.glob("notebooks/solutions/04_*.py")
    assert "✓" in run(tmp_path, program, "check", "allreduce", solution, PYTHONIOENCODING="utf-8")


@pytest.mark.long
@pytest.mark.packages
def test_all_files_are_in_what_is_built(wheel, source):
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "d2lmgpu").rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("d2lmgpu/")}
    assert {path for path in ours if "__pycache__" not in path} == packed
    if (ROOT / ".git").exists():
        done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
        assert [name for name in done.stdout.splitlines() if not (source / name).exists()] == [".ci/run"]
