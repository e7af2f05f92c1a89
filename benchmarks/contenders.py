"""Those who train LeNet in `compare_pytorch`, each in a process of its own, all on the same minibatches.

A contender has ``steps(indices)``: train on these minibatches (a list of index
arrays), wait until all work is done, and return the mean loss per example.
"""

import multiprocessing as mp
import os
import sys
import time
from pathlib import Path

import numpy as np

BATCH, LR = 256, 0.05


def import_from(folder):
    """The package d2lmgpu of the repository ``folder``, from now on in the place of any other that was imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "d2lmgpu"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    import d2lmgpu

    if not Path(d2lmgpu.__file__).is_relative_to(Path(folder).resolve()):
        raise RuntimeError(f"{folder} has no d2lmgpu: {d2lmgpu.__file__} was imported")
    return d2lmgpu


class Ours:
    """d2lmgpu on k devices, as `train` does it; ``precision`` and ``graphs`` matter on a GPU only."""

    def __init__(self, data, environment="cpu", devices=1, batch=BATCH, graphs=True, precision="float32"):
        import d2lmgpu as d2l
        from d2lmgpu.training.graph_step import GraphStep

        try:
            from d2lmgpu.training.textbook_steps import TextbookSteps as Steps
        except ImportError:  # an earlier version
            from d2lmgpu.training.plan_step import PlanStep as Steps

        _, devices = d2l.choose_devices(environment, devices)
        self.X, self.y = data
        params = d2l.init_params(0, init="he")
        self.M = len(self.X)
        self.whole_epochs = environment == "gpu" and graphs
        runner = GraphStep if self.whole_epochs else Steps
        self.runner = runner.of(self.X, self.y, params, devices, batch_size=batch, precision=precision)

    def steps(self, indices):
        order = np.concatenate(indices)
        if self.whole_epochs:
            order = np.resize(order, self.M)  # what is more than was given is not trained with
        self.runner.start_epoch(order, LR)
        examples, left = 0, len(indices)
        while left:
            sizes = self.runner.launch(left)
            examples, left = examples + sum(sizes), left - len(sizes)
        return sum(self.runner.pause()[0]) / examples


class Before(Ours):
    """An earlier version, in the repository ``folder``."""

    def __init__(self, data, folder, **settings):
        import_from(folder)  # in the place of the current version, which the main program has imported
        super().__init__(data, **settings)


class PyTorch:
    """PyTorch on one device: "eager", "compile", or on a GPU also "graph" (the step captured as a CUDA graph)."""

    def __init__(self, data, environment="cpu", mode="eager", threads=1, batch=BATCH, precision="float32"):
        import torch

        self.torch = torch
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True  # the fastest convolutions for these shapes
        self.mixed = precision == "mixed"
        self.device = "cuda" if environment == "gpu" else "cpu"
        self.batch = batch
        self.X, self.y = torch.tensor(data[0]).to(self.device), torch.tensor(data[1].astype(np.int64)).to(self.device)
        params = _initial_params()
        self.params = [torch.nn.Parameter(torch.tensor(p).to(self.device)) for p in params]
        self.optimizer = torch.optim.SGD(self.params, LR, fused=True)
        self.loss_of = torch.compile(self._loss) if mode == "compile" else self._loss
        self.graph = None
        if mode == "graph":
            self._capture()

    def steps(self, indices):
        torch = self.torch
        total = torch.zeros((), device=self.device)
        for index in torch.from_numpy(np.stack(indices)).to(self.device):
            if self.graph is not None:
                self.index.copy_(index)
                self.graph.replay()
                total += self.graph_loss
            else:
                total += self.train(index)
        return total.item() / len(indices)  # waits for the device

    def train(self, index):
        with self.torch.autocast(self.device, dtype=self.torch.bfloat16, enabled=self.mixed):
            loss = self.loss_of(self.X[index].float() / 255, self.y[index], *self.params)
        self.optimizer.zero_grad()
        loss.backward()
        self.exchange()
        self.optimizer.step()
        return loss.detach()

    def exchange(self):
        pass

    @staticmethod
    def _loss(X, y, W1, b1, W2, b2, W3, b3, W4, b4):
        import torch
        import torch.nn.functional as F

        h = F.avg_pool2d(F.relu(F.conv2d(X, W1, b1)), 2)
        h = F.avg_pool2d(F.relu(F.conv2d(h, W2, b2)), 2)
        h = F.relu(torch.addmm(b3, h.flatten(1), W3))
        return F.cross_entropy(torch.addmm(b4, h, W4), y)

    def _capture(self):
        torch = self.torch
        self.index = torch.arange(self.batch, device=self.device)
        before = [p.detach().clone() for p in self.params]
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.train(self.index)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.graph_loss = self.train(self.index)
        self.graph = graph
        with torch.no_grad():
            for p, value in zip(self.params, before, strict=True):
                p.copy_(value)


class DDP:
    """PyTorch's DistributedDataParallel over gloo: ``processes`` of one thread each, the batch split among them."""

    def __init__(self, data, processes=2, mode="eager"):
        context = mp.get_context("spawn")
        self.pipes = []
        for rank in range(processes):
            ours, theirs = context.Pipe()
            context.Process(target=_ddp_rank, args=(theirs, rank, processes, data, mode), daemon=True).start()
            self.pipes.append(ours)

    def steps(self, indices):
        k = len(self.pipes)
        for rank, pipe in enumerate(self.pipes):
            pipe.send([np.array_split(index, k)[rank] for index in indices])
        return sum(pipe.recv() for pipe in self.pipes) / k


def _ddp_rank(pipe, rank, processes, data, mode):
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29531"))
    dist.init_process_group("gloo", rank=rank, world_size=processes)

    class LeNet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.params = torch.nn.ParameterList(torch.tensor(p) for p in _initial_params())

        def forward(self, X, y):
            return PyTorch._loss(X, y, *self.params)

    side = PyTorch(data)
    model = torch.nn.parallel.DistributedDataParallel(LeNet())
    side.optimizer = torch.optim.SGD(model.parameters(), LR, fused=True)
    step = torch.compile(model) if mode == "compile" else model
    side.loss_of = lambda X, y, *params: step(X, y)
    while True:
        pipe.send(side.steps(pipe.recv()))


class SGEMM:
    """The machine's rate at large matrix products, in place of a training: ``steps`` returns GFLOP/s."""

    def __init__(self, data, threads=1, size=2048):
        from threadpoolctl import threadpool_limits

        threadpool_limits(threads)
        self.a, self.c = np.random.default_rng(0).random((size, size), dtype=np.float32), np.empty((size, size), "f")

    def steps(self, indices):
        begin = time.perf_counter()
        for _ in range(6):
            np.matmul(self.a, self.a, out=self.c)
        return 6 * 2 * len(self.a) ** 3 / (time.perf_counter() - begin) / 1e9


def _initial_params():
    import d2lmgpu as d2l

    return d2l.init_params(0, init="he")


class Worker:
    """A contender in a process of its own, which sleeps while others have their turn."""

    def __init__(self, kind, data, **settings):
        context = mp.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, kind, data, settings)).start()

    def steps(self, indices):
        """(seconds, what ``steps`` returned); RuntimeError if the contender failed."""
        self.pipe.send(indices)
        answer = self.pipe.recv()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def close(self):
        self.pipe.send(None)


def _serve(pipe, kind, data, settings):
    try:
        side = kind(data, **settings)
        while (indices := pipe.recv()) is not None:
            begin = time.perf_counter()
            value = side.steps(indices)
            pipe.send((time.perf_counter() - begin, value))
    except Exception as error:
        pipe.recv()
        pipe.send(f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)  # DDP's processes are daemons; nothing is to be saved
