"""Kernels compiled as CuPy would, without a GPU or a driver, and what they take of a multiprocessor.

`compile_cubin` calls CuPy's own compile function, so it needs CuPy and its NVRTC and cudart wheels.
"""

import io
import re

REGISTERS = 65536
LIMITS = {75: (64, 32, 16), 80: (164, 64, 32), 90: (228, 64, 32), 100: (228, 64, 32), 120: (100, 48, 24)}
"""Of a multiprocessor by architecture: kilobytes of shared memory, warps and blocks that it takes."""
RESERVED_BYTES = 1024
"""Of shared memory, that the system takes for each block, from architecture 80 on."""


class DoesNotCompile(Exception):
    """With the compiler's words."""


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


def blocks_resident(registers, shared_bytes, threads, arch=90):
    """Blocks that a multiprocessor holds at a time. ``registers``: of a thread."""
    kilobytes, most_warps, most_blocks = LIMITS[arch]
    warps = -(-threads // 32)
    registers = -(-registers * 32 // 256) * 256 * -(-warps // 4) * 4  # taken by warps, evenly by schedulers
    shared = -(-(shared_bytes + (RESERVED_BYTES if arch >= 80 else 0)) // 256) * 256
    by_shared = kilobytes * 1024 // shared if shared else most_blocks
    return max(0, min(most_blocks, most_warps // warps, REGISTERS // registers, by_shared))
