"""Environments that have what one extra brings, and nothing else: links to what is installed here."""

import configparser
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


def extras():
    """By an extra of setup.cfg what it needs; "" is what every installation needs."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", "utf-8")
    listed = {"": parser["options"]["install_requires"], **parser["options.extras_require"]}
    return {extra: [*map(Requirement, text.split("\n")[1:])] for extra, text in listed.items()}


def brought(extra):
    """The distributions that installing an extra brings. Skips a test if one of them is not here."""
    wanted, found, seen = [(need, "") for key in {"", extra} for need in extras()[key]], {}, set()
    for need, of in wanted:  # which become more
        if need.marker is None or need.marker.evaluate({"extra": of}):
            try:
                found[need.name] = metadata.distribution(need.name)
            except metadata.PackageNotFoundError:
                pytest.skip(f"{need.name} is not installed (pip install -e '.[{extra}]')")
            assert need.specifier.contains(found[need.name].version, prereleases=True), need
            new = {(need.name, more) for more in ("", *need.extras)} - seen
            seen |= new
            wanted += [(Requirement(text), more) for _, more in new for text in found[need.name].requires or ()]
    return found.values()


def environment(extra, folder):
    """Make the environment, with d2lmgpu as an editable installation has it. Returns its folder of programs."""
    distributions = brought(extra)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (library,) = folder.glob("lib/python*/site-packages")
    (library / "d2lmgpu.pth").write_text(str(ROOT))
    program = "from d2lmgpu.cli import main\nif __name__ == '__main__':\n    raise SystemExit(main())"
    _write_program(folder / "bin" / "d2lmgpu", program)
    for file in (file for distribution in distributions for file in distribution.files or ()):
        place, source = Path(os.path.normpath(library / file)), Path(file.locate())
        if source.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            if (
                place.parent.name == "bin"
                and source.read_bytes().startswith(b"#!")
                and "python" in source.read_text().partition("\n")[0]
            ):
                _write_program(place, source.read_text().partition("\n")[2])
            else:
                place.symlink_to(source)
    return folder / "bin"


def _write_program(path, text):
    path.write_text(f"#!{path.parent / 'python'}\n{text}")
    path.chmod(0o755)
