"""Compiles CUDA code for every architecture that nvcc knows; CI also compiles with NVRTC, as CuPy does (.ci/run).

This needs no GPU. Warnings, and registers spilled to memory, are errors.
"""

import shutil
import subprocess

import pytest

OPTIONS = ["-std=c++17", "-Xptxas", "--warn-on-spills"]


def compile_for_gpus(code, options, first, folder):
    """For compute capabilities (times ten) from ``first`` to 90; returns what the compiler complains about.

    ``folder`` is for temporary files. Skips the test where there is no compiler.
    """
    if not shutil.which("nvcc"):
        pytest.skip("compiling for GPUs needs nvcc")
    answer = subprocess.run(["nvcc", "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout
    known = [int(name.removeprefix("compute_")) for name in answer.split()]
    targets = [arch for arch in known if first <= arch < 90]
    # once to PTX for the oldest, and that to machine code for all up to 8.9; then all anew for 9.0
    others = [option for option in options if option[:2] != "-D"]
    command = ["nvcc", "-fatbin", *OPTIONS, "--Werror", "all-warnings", *others]
    command += ["-gencode", f"arch=compute_{targets[0]},code=[{','.join(f'sm_{arch}' for arch in targets)}]"]
    command += ["-gencode", "arch=compute_90,code=sm_90"] * (90 in known)
    # nvcc, unlike NVRTC, would take a macro's value apart at commas
    defines = "".join(f"#define {option[2:].replace('=', ' ', 1)}\n" for option in options if option[:2] == "-D")
    (folder / "kernels.cu").write_text(f"{defines}#line 1\n{code}")
    result = subprocess.run(
        [*command, "-o", "kernels.fatbin", "kernels.cu"], cwd=folder, capture_output=True, text=True
    )
    return result.stderr if result.returncode else ""
