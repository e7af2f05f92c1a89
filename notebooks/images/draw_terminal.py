"""Draw terminal.svg, what a terminal shows of a short training run, from a run that it makes now.

python notebooks/images/draw_terminal.py

The lines are those of the command, as they stand when it has ended: of a progress bar its last state.
"""

import os
import re
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path

COMMAND = ("d2lmgpu", "train", "--devices", "2", "--epochs", "3", "--init", "he")
CHARACTER, LINE, EDGE, TOP = 8.45, 22, 20, 46
"""Pixels: of a character of 14 pixels, of a line, around the text, and above it."""
STYLE = """
.window{fill:#14171c;stroke:#4a515c}
text{font:14px ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#eceef2;white-space:pre}
.typed{fill:#8fd3b6}
"""


def lines_of(command):
    """What a terminal shows of a command when it has ended. Raises CalledProcessError if it fails."""
    import pty  # not on Windows

    ours, theirs = pty.openpty()
    run = subprocess.Popen([sys.executable, "-m", *command], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    said = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # Linux says so that the other end is closed
            break
        if not some:
            break
        said += some
    os.close(ours)
    if run.wait():
        raise subprocess.CalledProcessError(run.returncode, command, said)
    return shown(said.decode())


def shown(said):
    """The lines that are left of what was written to a terminal."""
    said = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", said).replace("\r\n", "\n")
    return [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in said.rstrip().split("\n")]


def drawn(command, lines):
    """The SVG of a terminal in which a command was typed, and said these lines."""
    typed = f"$ {' '.join(command)}"
    width = round(max(map(len, [typed, *lines])) * CHARACTER + 2 * EDGE)
    height = TOP + LINE * (len(lines) + 1) + 8
    dots = "".join(
        f'<circle cx="{EDGE + 18 * i}" cy="20" r="6" fill="{colour}"/>'
        for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    texts = [
        f'<text{kind} x="{EDGE}" y="{TOP + 10 + LINE * row}">{escape(line)}</text>'
        for row, (line, kind) in enumerate([(typed, ' class="typed"'), *((line, "") for line in lines)])
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    title = f'<title id="a">What {escape(" ".join(command))} says</title>'
    window = f'<rect class="window" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    return "\n".join(
        [
            f'{head} role="img" aria-labelledby="a">',
            title,
            f"<style>{STYLE}</style>",
            window,
            dots,
            *texts,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    os.environ["COLUMNS"] = str(shutil.get_terminal_size((100, 24)).columns)
    Path(__file__).with_name("terminal.svg").write_text(drawn(COMMAND, lines_of(COMMAND)), "utf-8")
