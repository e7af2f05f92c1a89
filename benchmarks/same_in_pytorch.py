"""Answers: do DDP, FSDP, a pipeline and tensor parallelism in PyTorch compute our results?

    pip install torch==2.13.0
    python benchmarks/same_in_pytorch.py

docs/pytorch.md shows the functions. Each program runs in two processes, on CPUs, which exchange arrays through gloo.
"""

import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from same_problem import X, furthest, ours, params, y
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

images, labels = torch.tensor(X), torch.tensor(y)


class Half(nn.Module):
    """Half of LeNet, with our parameters."""

    def __init__(self, function, params):
        super().__init__()
        self.function, self.params = function, nn.ParameterList(map(torch.tensor, params))

    def forward(self, x):
        return self.function(x, *self.params)


def convolutions(x, W1, b1, W2, b2):
    x = F.avg_pool2d(F.relu(F.conv2d(x, W1, b1)), 2)
    return F.avg_pool2d(F.relu(F.conv2d(x, W2, b2)), 2)


def dense(x, W3, b3, W4, b4):
    return F.relu(x.flatten(1) @ W3 + b3) @ W4 + b4


def lenet():
    return nn.Sequential(Half(convolutions, params[:4]), Half(dense, params[4:]))


def loss(outputs, labels):
    return F.cross_entropy(outputs, labels, reduction="sum")


def ddp(rank):
    model = DistributedDataParallel(lenet())
    loss(model(images.chunk(2)[rank]), labels.chunk(2)[rank]).backward()
    grads = [2 * p.grad for p in model.parameters()]  # DDP averages over the two processes
    return f"DDP, rank {rank}: gradients differ from ours by at most {furthest(grads, ours):.1e}"


def fsdp(rank):
    model, mesh = lenet(), init_device_mesh("cpu", (2,))
    for part in (*model, model):  # each half is gathered by itself
        fully_shard(part, mesh=mesh)
    held = sum(p.to_local().numel() for p in model.parameters())
    loss(model(images.chunk(2)[rank]), labels.chunk(2)[rank]).backward()
    grads = [2 * p.grad.full_tensor() for p in model.parameters()]  # gathered, only to compare them
    differ = furthest(grads, ours)
    return f"FSDP, rank {rank}: holds {held} parameters; gradients differ from ours by at most {differ:.1e}"


def pipeline(rank):
    half = lenet()[rank]
    stage = PipelineStage(half, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss, scale_grads=False)
    schedule.step(images) if rank == 0 else schedule.step(target=labels)
    differ = furthest([p.grad for p in half.parameters()], ours[4 * rank : 4 * rank + 4])
    return f"1F1B, rank {rank}: gradients differ from ours by at most {differ:.1e}"


def tensor_parallel(rank):
    pair = nn.Sequential(nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
    x = torch.randn(64, 800)
    alone = pair(x).detach()
    split = parallelize_module(pair, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    shapes = [tuple(p.to_local().shape) for p in split.parameters()]
    differ = furthest([split(x).detach()], [alone])
    return f"tensor parallel, rank {rank}: holds {shapes}; outputs differ by at most {differ:.1e}"


def start(rank, program, folder):
    """Join the two processes, run the program in each, and print what it returns, in the order of ranks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{folder}/{program.__name__}")
    line = program(rank)
    for turn in range(2):
        if turn == rank:
            print(line, flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for program in (ddp, fsdp, pipeline, tensor_parallel):
            torch.multiprocessing.spawn(start, (program, folder), nprocs=2)
