"""Answers: what do the programs for PyTorch and JAX print that docs/pytorch.md shows?

    pip install torch==2.13.0 safetensors jax==0.10.2
    python benchmarks/record_frameworks.py

It runs them, records what they print, and writes that into the page. The page's blocks of text have all the lines of
all scripts, in order; each keeps its number of lines.
"""

import platform
import re
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

from quoted import write

from d2lmgpu.devices.discovery import count_cores

HERE = Path(__file__).resolve().parent
FILE = HERE / "results" / "cpu_frameworks.json"
PAGE = HERE.parent / "docs" / "pytorch.md"
SCRIPTS = "load_in_pytorch", "same_in_pytorch", "same_in_jax"
PACKAGES = {"NumPy": "numpy", "PyTorch": "torch", "safetensors": "safetensors", "JAX": "jax"}


def printed(script):
    """The lines that a script prints."""
    command = [sys.executable, HERE / f"{script}.py"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def filled(page, record):
    """The page's text with what was recorded: line after line in its blocks of text, and the circumstances."""
    lines = iter([line for script in SCRIPTS for line in record["printed"][script]])

    def block(match):
        return "```text\n" + "".join(f"{next(lines)}\n" for _ in match[1].splitlines()) + "```"

    page = re.sub(r"```text\n(.*?)```", block, page, flags=re.DOTALL)
    assert next(lines, None) is None, "the page has too few lines"
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    about = f"Recorded on {record['date']} on {record['machine']}: {versions}."
    return re.sub(r"^Recorded on .*$", about, page, flags=re.MULTILINE)


def main():
    versions = {"Python": platform.python_version(), **{name: version(package) for name, package in PACKAGES.items()}}
    record = {"date": date.today().isoformat(), "machine": f"{count_cores()} CPU cores", "versions": versions}
    record["printed"] = {script: printed(script) for script in SCRIPTS}
    write(FILE, record)
    PAGE.write_text(filled(PAGE.read_text("utf-8"), record), "utf-8")


if __name__ == "__main__":
    main()
