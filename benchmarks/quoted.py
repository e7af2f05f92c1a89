"""What the scripts here share: what belongs beside a figure, and how results become small tables."""

import argparse
import io
import json
import platform
import statistics
import subprocess
from datetime import date
from pathlib import Path

import numpy as np
from PIL import Image

from d2lmgpu.base.files import as_json, write_file
from d2lmgpu.devices.discovery import processor_name

LINE = 450
"""Characters: what is longer gets a line for each of its entries."""


def circumstances(note=""):
    """What should be known beside the figures."""
    return {
        "machine": machine(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "date": date.today().isoformat(),
        "commit": git("rev-parse", "--short", "HEAD"),
        "note": note,
    }


def machine(environment="cpu"):
    if environment == "cpu":
        return f"{processor_name()}, {platform.system()} {platform.machine()}"
    import torch

    return torch.cuda.get_device_name()


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip()


def spread(values):
    """Median, quartiles, least and most, to four digits, and of how many values."""
    low, high = np.percentile(values, [25, 75])
    numbers = {"median": statistics.median(values), "lower quartile": low, "upper quartile": high}
    numbers |= {"min": min(values), "max": max(values)}
    return {name: float(f"{number:.4g}") for name, number in numbers.items()} | {"n": len(values)}


def as_table(result):
    """JSON with a line for each entry of the result, and for each row of an entry that is long."""
    return _lines(result, "", 0) + "\n"


def _lines(value, indent, longest=LINE):
    text = as_json(value, ensure_ascii=False)
    if len(indent) + len(text) <= longest or not isinstance(value, (dict, list)):
        return text
    inner = indent + " "
    if isinstance(value, dict):
        entries = [f"{as_json(name, ensure_ascii=False)}: {_lines(entry, inner)}" for name, entry in value.items()]
    else:
        entries = [_lines(entry, inner) for entry in value]
    return f"{text[0]}\n{inner}" + f",\n{inner}".join(entries) + f"\n{indent}{text[-1]}"


def write(path, result):
    """Write a result `as_table`."""
    write_file(path, lambda file: file.write(as_table(result).encode()))


def save_picture(figure, file, dpi=150):
    """Write a PNG of 256 colours, which takes a third of the bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, format="png")
    picture = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(file, "PNG", optimize=True)


def fill(page, name, text):
    """Put a text between the page's marks of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    path = Path(page)
    before, rest = path.read_text(encoding="utf-8").split(begin)
    path.write_text(before + begin + text + "\n" + end + rest.split(end)[1], encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write JSON files anew, such as those of on_gpu.sh: a row a line.")
    parser.add_argument("files", nargs="+", type=Path)
    for file in parser.parse_args().files:
        write(file, json.loads(file.read_text(encoding="utf-8")))
