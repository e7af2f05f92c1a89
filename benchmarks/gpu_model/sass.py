"""The machine code of a kernel for one architecture, compiled as CuPy would, without a GPU or a driver.

`compile_cubin` calls CuPy's own compile function, so it needs CuPy and its NVRTC
and cudart wheels; `disassemble` needs nvdisasm (pip install nvidia-cuda-nvdisasm).

Beside what an instruction does, its 128 bits say when it may be issued: how many
cycles the warp then stalls, which of six counters ("barriers") it raises until
its result is there or its operands are read, and which must be down before it
starts. Their places are those that Jia et al. 2018, "Dissecting the NVIDIA Volta
GPU architecture via microbenchmarking", found; they hold up to sm_90.
"""

import functools
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple


class DoesNotCompile(Exception):
    """With the compiler's words."""


class Kernel(NamedTuple):
    """A compiled kernel. ``code``: its `Instruction`s, at 16 bytes each; ``labels``: name → index into it."""

    name: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    code: tuple
    labels: dict


class Instruction(NamedTuple):
    """``@guard opcode operands``, with its control bits; barriers are numbers from 0, or 7 for none."""

    guard: str
    opcode: str
    operands: tuple[str, ...]
    stall: int
    write_barrier: int
    read_barrier: int
    wait_mask: int


def compile_cubin(code, options, arch):
    """Source text and options like those of ``cupy.RawModule`` → the cubin, and what ptxas said.

    Raises DoesNotCompile.
    """
    from cupy._core import core
    from cupy.cuda import compiler

    ours, compiler._get_arch_for_options_for_nvrtc = (
        compiler._get_arch_for_options_for_nvrtc,
        lambda arch=None: (f"-arch=sm_{arch}", "cubin"),
    )
    log = io.StringIO()
    try:
        options = core.assemble_cupy_compiler_options(tuple(options)) + ("-ftz=true", "--ptxas-options=-v")
        cubin, _ = compiler._compile_using_nvrtc_no_warning(code, options, str(arch), "kernels.cu", None, log)
    except compiler.CompileException as error:
        raise DoesNotCompile(str(error)) from None
    finally:
        compiler._get_arch_for_options_for_nvrtc = ours
    return cubin, log.getvalue()


def resources(log):
    """Kernel name → (registers, bytes of static shared memory, bytes spilled), from what ptxas said."""
    found = {}
    for part in log.split("Compiling entry function '")[1:]:
        number = {
            key: sum(int(count) for count in re.findall(pattern, part))
            for key, pattern in [("registers", r"Used (\d+) reg"), ("shared", r"(\d+) bytes smem")]
        }
        spilled = sum(int(count) for count in re.findall(r"(\d+) bytes spill stores", part))
        found[part.split("'")[0]] = number["registers"], number["shared"], spilled
    return found


@functools.cache
def kernels(code, options, arch=90):
    """Kernel name → `Kernel`, of all in this source."""
    cubin, log = compile_cubin(code, options, arch)
    bodies = disassemble(cubin)
    return {name: Kernel(name, *numbers, *bodies[name]) for name, numbers in resources(log).items()}


def find_nvdisasm():
    """The path of nvdisasm, or None: on the PATH, or where PyPI's package puts it."""
    places = [Path(path) / "nvidia" for path in sys.path]
    found = [str(file) for place in places for file in place.glob("*/bin/nvdisasm*")]
    return shutil.which("nvdisasm") or (found[0] if found else None)


def disassemble(cubin):
    """Kernel name → (instructions, labels). Raises FileNotFoundError without nvdisasm."""
    nvdisasm = find_nvdisasm()
    if nvdisasm is None:
        raise FileNotFoundError("nvdisasm: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin + b"\0")  # CuPy strips the last one
        file.flush()
        text = subprocess.run([nvdisasm, "-c", "-hex", file.name], capture_output=True, text=True, check=True).stdout
    sections = re.split(r"^\s*\.section\s+\.text\.", text, flags=re.MULTILINE)[1:]
    return {re.split(r"[,\s]", section, maxsplit=1)[0]: _read(section) for section in sections}


_LINE = re.compile(
    r"^\s*(?:\{|\})?\s*(?P<label>\S+):\s*$"
    r"|^\s+/\*[0-9a-f]{4,}\*/\s+(?P<text>.*?)\s*;?\s*/\* 0x(?P<low>[0-9a-f]{16}) \*/\s*$"
    r"|^\s+/\* 0x(?P<high>[0-9a-f]{16}) \*/\s*$"
)


def _read(section):
    code, labels, text = [], {}, None
    for line in section.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        if match["label"]:
            labels[match["label"]] = len(code)
        elif match["text"] is not None:
            text = match["text"]
        else:
            code.append(_instruction(text, int(match["high"], 16) >> 41))
    return tuple(code), labels


def _instruction(text, control):
    words = re.sub(r"\(\*.*?\*\)", "", text).strip("{} ;").split(None, 1)
    guard = words[0][1:] if words[0].startswith("@") else "PT"
    if words[0].startswith("@"):
        words = words[1].split(None, 1)
    operands = tuple(part.strip() for part in words[1].split(",")) if len(words) > 1 else ()
    return Instruction(
        guard,
        words[0],
        operands,
        stall=max(1, control & 15),
        write_barrier=control >> 5 & 7,
        read_barrier=control >> 8 & 7,
        wait_mask=control >> 11 & 63,
    )
