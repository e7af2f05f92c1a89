"""``python on_standin.py CARDS ARGUMENTS``: the command d2lmgpu on a machine with so many stand-in GPUs.

CARDS may also be JSON: the arguments of `standin_driver.Machine`, "nccl" if there is one, and "broken in rank 1". If
$STANDIN_CONTEXTS is a folder, a file there tells which cards have a context of this process in the end.
"""

import json
import os
import sys
from pathlib import Path

import pytest
import standin_cupy
from standin_nccl import install_nccl

from d2lmgpu.cluster import begin_together


def machine_of(text):
    given = json.loads(text)
    properties = given if isinstance(given, dict) else {"cards": given}
    refuses = {int(card): error for card, error in properties.pop("refuses", {}).items()}
    patch, has_nccl = pytest.MonkeyPatch(), properties.pop("nccl", False)
    broken, ranks = properties.pop("broken in rank 1", []), {"PMI_RANK", "OMPI_COMM_WORLD_RANK"}
    if "1" in {os.environ.get(rank) for rank in ranks}:
        properties["broken"] = broken
    machine = standin_cupy.install(patch, refuses=refuses, **properties)
    if has_nccl:
        install_nccl(patch)
    return machine


if __name__ == "__main__":
    begin_together()  # as the command does first
    machine = machine_of(sys.argv[1])
    from d2lmgpu.cli import main
    from d2lmgpu.devices import cpu
    from d2lmgpu.networks import compute

    cpu(0)  # holds BLAS, which multiplies for these GPUs, to one thread: with more it adds in another order
    compute.USE_CUDA_KERNELS = False  # they would take minutes
    code = main(sys.argv[2:])
    if folder := os.environ.get("STANDIN_CONTEXTS"):
        Path(folder, str(os.getpid())).write_text(json.dumps(sorted(machine.contexts)))
    sys.exit(code)
