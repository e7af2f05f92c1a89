"""Who installs without cloning has the course and the data, too: where setup.cfg lets an installer put them."""

import configparser
from pathlib import Path

import pytest

from d2lmgpu.base import files as shipped
from d2lmgpu.data import fashion_mnist
from d2lmgpu.exercises.course import find_notebooks

ROOT = Path(__file__).resolve().parents[2]


def data_files():
    """By a folder of the environment the files that setup.cfg puts there."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return {Path(folder): sorted(ROOT.glob(files.strip())) for folder, files in parser["options.data_files"].items()}


def test_setup_cfg_names_all_that_a_clone_has():
    (_, notebooks), (_, data) = data_files().items()
    assert notebooks == find_notebooks()
    assert {path.name for path in data} == {*fashion_mnist.FILES, "LICENSE"}
    assert {path.parent for path in data} == {shipped.shipped("data/fashion-mnist")}


@pytest.mark.parametrize(
    "library",
    ["lib/python3.11/site-packages", "Lib/site-packages", "Python311/site-packages", "lib/python", "."],
)
def test_an_installed_package_finds_them(tmp_path, monkeypatch, library):
    for folder, files in data_files().items():
        (tmp_path / folder).mkdir(parents=True)
        for file in files:
            (tmp_path / folder / file.name).symlink_to(file)
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / library / "d2lmgpu" / "base" / "files.py"))
    monkeypatch.delenv("D2LMGPU_DATA", raising=False)
    share = tmp_path / "share" / "d2lmgpu"
    assert find_notebooks() == sorted((share / "notebooks").glob("*.ipynb")) != []
    for name in fashion_mnist.FILES:
        assert fashion_mnist.find_file(name) == share / "data" / "fashion-mnist" / name
