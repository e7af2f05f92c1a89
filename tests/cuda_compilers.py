"""Compiles CUDA code for every architecture that the compiler at hand knows: nvcc, or NVRTC, which CuPy uses.

Neither needs a GPU. Warnings, and registers spilled to memory, are errors.
"""

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

OPTIONS = ["-std=c++17", "-Xptxas", "--warn-on-spills"]


def compile_for_gpus(code, options, first, folder):
    """For compute capabilities (times ten) from ``first`` to 90; returns what the compiler complains about.

    ``folder`` is for temporary files. Skips the test where there is no compiler.
    """
    if shutil.which("nvcc"):
        return _nvcc(code, options, first, folder)
    library = find_nvrtc()
    if library is None:
        pytest.skip("compiling for GPUs needs nvcc or NVRTC (pip install nvidia-cuda-nvrtc nvidia-cuda-runtime)")
    headers = [path for path in (library.parents[1] / "include", Path("/usr/local/cuda/include")) if path.exists()]
    if "#include <" in code and not headers:
        pytest.skip("these kernels need CUDA's headers (pip install nvidia-cuda-runtime)")
    for builtins in library.parent.glob("libnvrtc-builtins.so.*"):  # NVRTC opens it by name: let it be there already
        ctypes.CDLL(str(builtins))
    return _nvrtc(ctypes.CDLL(str(library)), code, [*options, *(f"-I{path}" for path in headers)], first)


def _nvcc(code, options, first, folder):
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


def find_nvrtc():
    """The path of NVRTC's library as PyPI's packages install it, or None."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations] if spec else []
    return next((path for folder in folders for path in sorted(folder.glob("*/lib/libnvrtc.so.*"))), None)


def _nvrtc(nvrtc, code, options, first):
    def ask(function, program):
        size = ctypes.c_size_t()
        getattr(nvrtc, f"{function}Size")(program, ctypes.byref(size))
        answer = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, function)(program, answer)
        return answer.value.decode()

    count = ctypes.c_int()
    nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    known = (ctypes.c_int * count.value)()
    nvrtc.nvrtcGetSupportedArchs(known)
    for arch in known:
        if not first <= arch <= 90:
            continue
        program = ctypes.c_void_p()
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"kernels.cu", 0, None, None)
        texts = [text.encode() for text in (*OPTIONS, f"-arch=sm_{arch}", *options)]
        failed = nvrtc.nvrtcCompileProgram(program, len(texts), (ctypes.c_char_p * len(texts))(*texts))
        log = ask("nvrtcGetProgramLog", program)
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        if failed or log:
            return f"for sm_{arch}: {log}"
    return ""
