"""The programs and commands that the README and the pages in docs/ show."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = {page.stem: page.read_text(encoding="utf-8") for page in PAGES}
PROGRAMS = [code for text in SHOWN.values() for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def program_with(text):
    """The one of the programs shown that has this text in it."""
    (program,) = [program for program in PROGRAMS if text in program]
    return program


def run_python(code, folder=ROOT):
    """In a process of its own; returns what it printed."""
    command = [sys.executable, "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, encoding="utf-8", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
