"""CUDA kernels on the CPU: a stand-in for ``cupy.RawModule`` that compiles with g++ and cuda_shim.h.

    module = RawModule(code=source, options=("-DC=20",))
    kernel = module.get_function("conv_forward")
    kernel(grid, block, (x, weight, bias, y, mask, np.int32(N)))

Arguments are NumPy arrays, written in place, and NumPy scalars. Stricter than
a GPU: a wrong number or type of arguments is a TypeError, a read beyond an array
finds NaN, a write beyond it or into a ``const`` array is a KernelError, and so are
a barrier that some threads never reach and asynchronous copies that nobody waits for.
"""

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

SHIMS = [Path(__file__).with_name(name) for name in ("cuda_shim.h", "cuda_shim_mma.h", "cuda_shim.cpp")]
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-w", "-U_FORTIFY_SOURCE", "-fsanitize=alignment"]
GUARD = 512  # bytes before and behind each array
POISON = np.uint32(0x7FA1A1A1)  # as float32, NaN; and one that any arithmetic changes, so that even += shows

DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "int": np.int32,
    "long long": np.int64,
    "unsigned int": np.uint32,
    "unsigned char": np.uint8,
    "unsigned short": np.uint16,
    "half": np.float16,
    "__half": np.float16,
}
SIGNATURE = re.compile(r'extern "C" __global__ void\b[^{;]*?(\w+)\(([^()]*)\)\s*\{')


class KernelError(RuntimeError):
    """A kernel did what would be an error, or undefined, on a GPU."""


class Parameter(NamedTuple):
    """``const float* __restrict__ x`` → name "x", dtype float32, pointer and const."""

    name: str
    ctype: str
    dtype: type
    is_pointer: bool
    is_const: bool


class RawModule:
    """The kernels of one source, compiled with some macros."""

    def __init__(self, *, code, options=()):
        self._library, self._signatures = compile_for_cpu(
            code, tuple(option for option in options if option[:2] == "-D")
        )

    def get_function(self, name):
        return Kernel(name, self._signatures[name], self._library["launch_" + name])


class Kernel:
    """Callable like ``cupy.RawKernel``: ``kernel(grid, block, args)``."""

    def __init__(self, name, parameters, launch):
        self.name, self.parameters, self._launch = name, parameters, launch
        launch.restype = ctypes.c_char_p

    def __call__(self, grid, block, args):
        if len(args) != len(self.parameters):
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments, not {len(args)}")
        guarded, values = {}, []  # values[i] is a C variable with argument i: a pointer, or a number
        for arg, parameter in zip(args, self.parameters, strict=True):
            self._check(arg, parameter)
            if parameter.is_pointer:
                guarded[id(arg)] = guarded.get(id(arg)) or Guarded(arg)
                values.append(np.array(guarded[id(arg)].address, np.uint64))
            else:
                values.append(np.array(arg))
        addresses = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        (gx, gy, gz), (bx, by, bz) = ((*size, 1, 1)[:3] for size in (grid, block))
        if not (0 < gx < 2**31 and 0 < gy < 2**16 and 0 < gz < 2**16 and 0 < bx * by * bz <= 1024 and bz <= 64):
            raise KernelError(f"{self.name}: no GPU launches grid {grid} with block {block}")
        message = self._launch((ctypes.c_uint * 3)(gx, gy, gz), (ctypes.c_uint * 3)(bx, by, bz), addresses)
        if message:
            raise KernelError(f"{self.name}: {message.decode()}")
        pairs = [(arg, p) for arg, p in zip(args, self.parameters, strict=True) if p.is_pointer]
        names = {id(arg): p.name for arg, p in pairs}  # an array may be several arguments
        written = {id(arg) for arg, p in pairs if not p.is_const}
        for key, name in names.items():
            guarded[key].finish(f"{self.name}: {name}", key in written)

    def _check(self, arg, parameter):
        wanted = np.dtype(parameter.dtype)
        kind = np.ndarray if parameter.is_pointer else np.generic
        if not isinstance(arg, kind) or arg.dtype != wanted:
            what = f"{type(arg).__name__} of {arg.dtype}" if hasattr(arg, "dtype") else type(arg).__name__
            raise TypeError(f"{self.name}: {parameter.name} is a {what}; it should be {kind.__name__} of {wanted}")
        if parameter.is_pointer and not arg.flags.c_contiguous:
            raise TypeError(f"{self.name}: {parameter.name} is not contiguous")


class Guarded:
    """A copy of an array between two zones of poison, with the same alignment within 16 bytes."""

    def __init__(self, array):
        self.array = array
        self.buffer = np.full((array.nbytes + 2 * GUARD) // 4 + 64, POISON).view(np.uint8)
        self.start = GUARD + (array.ctypes.data - self.buffer.ctypes.data - GUARD) % 16
        self.address = self.buffer.ctypes.data + self.start
        self.values = self.buffer[self.start : self.start + array.nbytes]
        self.values[:] = array.reshape(-1).view(np.uint8)

    def finish(self, what, may_write):
        """Copy the result back; KernelError if the kernel wrote where it must not."""
        values = self.values.copy()
        self.values[:] = 0
        clean = np.full(len(self.buffer) // 4, POISON).view(np.uint8)
        clean[self.start : self.start + self.array.nbytes] = 0
        if (self.buffer != clean).any():
            raise KernelError(f"{what}: written outside of the array")
        if may_write:
            self.array[...] = values.view(self.array.dtype).reshape(self.array.shape)
        elif (values != self.array.reshape(-1).view(np.uint8)).any():
            raise KernelError(f"{what}: const, but written")


def signatures(code):
    """Kernel name → list of `Parameter`, of every ``extern "C" __global__`` function of preprocessed code."""
    found = SIGNATURE.findall(code)
    return {name: [_parameter(part) for part in text.split(",") if part.strip()] for name, text in found}


def _parameter(text):
    *words, name = text.replace("*", " * ").replace("__restrict__", " ").split()
    kind = " ".join(word for word in words if word not in ("const", "*"))
    return Parameter(name, kind, DTYPES[kind], "*" in words, "const" in words)


COMPILED = "CUDA_ON_CPU"
"""The variable that names the folder for compiled kernels, which all processes of a test run share, and later runs."""


@functools.cache
def folder():
    """Where kernels are, compiled with these shims, and the shims themselves. Skips the test without g++."""
    if shutil.which("g++") is None:
        pytest.skip("running CUDA kernels on the CPU needs g++, which is not installed")
    what = [gpp(["--version"]), *FLAGS, *(f"{shim}{shim.read_text('utf-8')}" for shim in SHIMS)]
    folder = Path(os.environ.get(COMPILED) or Path(tempfile.gettempdir(), "cuda_on_cpu"), _sum("".join(what)))
    folder.mkdir(parents=True, exist_ok=True)
    header = folder / "shims.h"
    *headers, source = SHIMS
    header.write_text("".join(f'#include "{shim}"\n' for shim in headers))
    _made(folder / "shims.h.gch", lambda path: gpp([*FLAGS, "-x", "c++-header", str(header), "-o", path]))
    _made(folder / "shims.o", lambda path: gpp([*FLAGS, "-c", str(source), "-o", path]))
    # All kernels find the standard libraries here: to link these to each would take as long as to compile it.
    libraries = _made(folder / "libraries.so", lambda path: gpp(["-shared", "-Wl,--no-as-needed", "-o", path]))
    ctypes.CDLL(str(libraries), ctypes.RTLD_GLOBAL)
    return folder


def _made(path, make):
    """The file ``path``, which ``make(path)`` makes unless it is there; other processes see it when it is complete."""
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        make(str(part))
        part.replace(path)
    return path


def _sum(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_compiling = threading.Lock()
"""Several devices' threads may ask for the same kernel."""


def compile_for_cpu(code, options):
    """A loaded library with a ``launch_…`` function a kernel, and the signatures."""
    with _compiling:
        return _compile(code, options)


@functools.cache
def _compile(code, options):
    defines = "".join(f"#define {option[2:].replace('=', ' ', 1)}\n" for option in options)
    found = signatures(gpp(["-E", "-P", "-x", "c++", "-"], defines + code))
    launchers = [launcher(name, parameters) for name, parameters in found.items()]
    text = "\n".join(['#include "shims.h"', defines, "#line 1", code, *launchers])  # the shims see no macros
    options = [*FLAGS, "-shared", "-nodefaultlibs", "-I", str(folder()), str(folder() / "shims.o"), "-x", "c++", "-"]
    path = _made(folder() / f"{_sum(text)}.so", lambda path: gpp([*options, "-o", path], text))
    return ctypes.CDLL(str(path)), found


def launcher(name, parameters):
    """The source of a C function that takes grid, block and the addresses of the arguments."""
    args = ", ".join(f"*({p.ctype}{'*' * p.is_pointer}*)args[{i}]" for i, p in enumerate(parameters))
    return (
        f"static void call_{name}(void** args) {{ {name}({args}); }}\n"
        f'extern "C" __attribute__((visibility("default"))) const char* '
        f"launch_{name}(unsigned* grid, unsigned* block, void** args) "
        f"{{ return cuda_shim::launch(grid, block, call_{name}, args); }}"
    )


def gpp(arguments, text=""):
    result = subprocess.run(["g++", *arguments], input=text, capture_output=True, text=True)
    if result.returncode:
        raise KernelError(f"g++ could not compile the kernel:\n{result.stderr[:3000]}")
    return result.stdout
