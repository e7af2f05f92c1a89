"""What a training step asks of its GPUs: every kernel, with its block and its shared memory.

The package's own code is driven, with a module in the place of CuPy that writes
them down: arrays are NumPy's, and kernels are not run. So the list is that of the
program as it is, without a GPU, and for any number of images.
"""

import contextlib
import sys

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.devices import choose, probes
from d2lmgpu.kernels.cuda.program import Program
from d2lmgpu.kernels.cuda.streams import ADDED, add
from d2lmgpu.training.graph_step import GraphStep

from .recorder import Recorder

SHAPE = 1, 28, 28


def record_step(
    network, batch_size, precision="float32", cards=1, optimizer="sgd", algorithm="ring", shape=SHAPE, **more
):
    """The kernels (`Launch`) of one training step of a whole batch, on as many GPUs, as `GraphStep` captures it.

    ``more``: other settings.
    """
    with recording(cards) as recorder:
        devices = [d2l.gpu(i) for i in range(cards)]
        params = d2l.init_params(1, init="he", network=network)
        X, y = np.zeros((batch_size, *shape), np.uint8), np.zeros(batch_size, np.uint8)
        settings = {"batch_size": batch_size, "algorithm": algorithm, "precision": precision, "optimizer": optimizer}
        settings |= more
        step = GraphStep.of(X, y, params, devices, network, **settings)
        step.start_epoch(np.arange(batch_size), 0.1)
        step.launch(1)
        return recorder.captured


def record_plan(network, params, shape, N, precision="float32"):
    """The kernels that a program launches, forward and backward, in order: also of networks that no graph can take."""
    with recording(1) as recorder:
        gpu = d2l.gpu(0)
        params = d2l.get_params(params, gpu)

        def launch():
            raws = [param.raw for param in params]
            program = Program(network, raws, shape, N, precision)
            program.use_statistics(program.new_moments())
            program.forward(raws)
            program.backward(raws, raws)

        with np.errstate(all="ignore"):
            gpu.submit(launch).result()
        return recorder.launches


def record_additions():
    """The kernels that add arrays in a collective, of each dtype."""
    with recording(1) as recorder:
        gpu = d2l.gpu(0)
        for dtype in ADDED:
            array = gpu.submit(gpu.empty, 1, dtype).result()
            gpu.submit(add, array, array).result()
        return recorder.launches


class _AllWorks(dict):
    """In the place of what was tried: on a machine that only writes down, no trial has a result."""

    def get(self, key, default=None):
        return probes.Probe(*key, works=True, why=None, seconds=0.0)


@contextlib.contextmanager
def recording(cards):
    """Within the ``with`` block ``import cupy`` gives a module that writes down: yields its `Recorder`."""
    names = [name for name in sys.modules if name == "cupy" or name.startswith("cupy.")]
    real = {name: sys.modules.pop(name) for name in names}
    devices = {key: choose._devices.pop(key) for key in list(choose._devices) if key[0] is choose.GPU}
    recorder = Recorder(cards)
    known, probes._probes = probes._probes, _AllWorks()
    sys.modules["cupy"], sys.modules["cupy.cuda"] = recorder.module, recorder.module.cuda
    try:
        yield recorder
    finally:
        for key in [key for key in choose._devices if key[0] is choose.GPU]:
            choose._devices[key].synchronize()  # their threads import cupy, too
            del choose._devices[key]
        probes._probes = known
        choose._devices.update(devices)
        for name in ("cupy", "cupy.cuda"):
            del sys.modules[name]
        sys.modules.update(real)
