"""``python on_standin.py CARDS ARGUMENTS``: the command d2lmgpu on a machine with so many stand-in GPUs."""

import sys

import pytest
import standin_cupy

from d2lmgpu.cluster import begin_together

if __name__ == "__main__":
    cards, *arguments = sys.argv[1:]
    begin_together()  # as the command does first: no supervisor begins where there is CuPy
    standin_cupy.install(pytest.MonkeyPatch(), cards=int(cards))
    from d2lmgpu.cli import main
    from d2lmgpu.devices import cpu
    from d2lmgpu.networks import compute

    cpu(0)  # holds BLAS, which multiplies for these GPUs, to one thread: with more it adds in another order
    compute.USE_CUDA_KERNELS = False  # they would take minutes
    sys.exit(main(arguments))
