"""Predicts, without a GPU, how long a training step takes on H100s: microseconds a kernel, and of the whole graph.

    python benchmarks/predict_gpu.py --precision float32,mixed --batch 256 --json predicted.json

Nothing here was measured: all figures are *predicted*, by what can be counted.

1. gpu_model/launches.py drives the package and writes down the step's launches, and what waits for what.
2. gpu_model/sass.py compiles each for sm_90 as CuPy would, and reads the machine code with its stalls and barriers.
3. gpu_model/warps.py follows each warp of the blocks that one multiprocessor gets, through loops and branches.
4. gpu_model/multiprocessor.py lets the warps take turns on its four schedulers, cycle by cycle.
5. gpu_model/step.py lets kernels wait for those they depend on, and share a card if they run at the same time.

The constants, in multiprocessor.py and step.py, are the hardware's, or chosen once and for all kernels
together so that the step's launches, as they were when this file was added, came out as an audit had estimated them by
hand: 13 of 16 within 20%, and not the three of the first dense layer, where the audit did not count that each gate is
waited for (results/predicted_h100_first.json has both, and the counts). No constant belongs to a kernel. They are
frozen since: a model that is tuned while it judges judges nothing.

Needs: pip install cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-nvdisasm.
"""

import argparse
import functools
import struct
from pathlib import Path

import numpy as np
from gpu_model import multiprocessor, sass, step, warps
from gpu_model.launches import record_step
from gpu_model.multiprocessor import CLOCK, MULTIPROCESSORS
from gpu_model.recorder import Memory
from gpu_model.step import KERNEL_START, predict_step

from d2lmgpu.networks import NETWORKS
from d2lmgpu.output import write_json

ROUNDS = 2
LONG = 200_000
"""How often a multiprocessor is filled in the simulation, once if it then issues so many instructions; for more blocks
the time is extrapolated."""


def constant_bank(node):
    """The bytes of constant bank 0 on sm_90: sizes of block and grid, and from 0x210 on the arguments."""
    bank = bytearray(0x210)
    struct.pack_into("<6I", bank, 0, *(*node.block, 1, 1)[:3], *(*node.grid, 1, 1)[:3])
    for argument in node.arguments:
        data = struct.pack("<Q", argument.address) if isinstance(argument, Memory) else np.asarray(argument).tobytes()
        bank += bytes(-len(bank) % len(data)) + data
    return bytes(bank)


ONE, EVERY_OTHER_BIT = 0x3F800000, 0x55555555


def reader(node):
    """A function: the values at these addresses. Whole numbers are those that the launch was given, others made up."""
    known = [memory for memory in node.arguments if isinstance(memory, Memory) and memory.values is not None]
    ranges = [(memory.address, memory.address + memory.nbytes, memory.values.reshape(-1)) for memory in known]

    def read(addresses, size):
        if size < 4:
            return (EVERY_OTHER_BIT << addresses // size % 2) & (1 << 8 * size) - 1
        for start, stop, values in ranges:
            if start <= addresses[0] < stop:
                return values[np.clip((addresses - start) // 4, 0, len(values) - 1)].astype(np.int64) & 0xFFFFFFFF
        return ONE

    return read


class Predictor:
    """Predicts kernels, each once: launches that differ in nothing but addresses take as long."""

    def __init__(self, include=()):
        self.include = tuple(f"-I{folder}" for folder in include)
        self.known = {}

    def kernel(self, node):
        """What was counted for a kernel by itself, with its "seconds". Raises sass.DoesNotCompile."""
        sizes = tuple(a.nbytes if isinstance(a, Memory) else a.item() for a in node.arguments)
        key = node.code, node.options, node.name, node.grid, node.block, node.shared_bytes, sizes
        if key not in self.known:
            compiled = sass.kernels(node.code, (*node.options, *self.include))[node.name]
            self.known[key] = count(node, compiled)
        return self.known[key]


def count(node, kernel):
    """Simulates the multiprocessors that get the first block and the last one; the later is the kernel's end."""
    threads = int(np.prod(node.block))
    X, Y, Z = (*node.grid, 1, 1)[:3]
    blocks, block_warps = X * Y * Z, -(-threads // 32)
    resident = multiprocessor.blocks_resident(kernel.registers, kernel.shared_bytes + node.shared_bytes, threads)
    if resident == 0:
        raise ValueError(f"{node.name}: a block of {threads} threads does not fit on a multiprocessor")
    shape, bank, memory = (*node.block, 1, 1)[:3], constant_bank(node), reader(node)

    @functools.cache
    def block(number):
        place = number % X, number // X % Y, number // (X * Y)
        return [warps.trace(kernel, bank, shape, place, warp, memory) for warp in range(block_warps)]

    busy, results, seen = min(blocks, MULTIPROCESSORS), [], []
    for first in sorted({0, (blocks - 1) % MULTIPROCESSORS}):
        mine = range(first, blocks, MULTIPROCESSORS)
        chosen = [block(number) for number in mine[:resident]]
        is_long = sum(len(issued) for warps_of_one in chosen for issued, _ in warps_of_one) > LONG
        most = resident if is_long else ROUNDS * resident
        chosen += [block(number) for number in mine[resident:most]]
        work = len(mine), [len(issued) for warps_of_one in chosen for issued, _ in warps_of_one]
        if work in seen:  # this multiprocessor has as much to do as the other
            continue
        seen.append(work)
        cycles, counts = multiprocessor.simulate(kernel.code, chosen, resident, busy)
        counts["part_issuing"] = round(counts["issued"] / 4 / cycles, 3)
        if len(mine) > most:
            shorter = 0.0 if is_long else multiprocessor.simulate(kernel.code, chosen[:resident], resident, busy)[0]
            cycles += (cycles - shorter) * (len(mine) - most) / resident
        results.append((cycles, counts | {"simulated_blocks": len(chosen)}))
    cycles, counts = max(results, key=lambda pair: pair[0])
    fits = min(1.0, blocks / (MULTIPROCESSORS * resident))
    return {
        "name": node.name,
        "grid": list(node.grid),
        "block": list(node.block),
        "registers": kernel.registers,
        "shared_bytes": kernel.shared_bytes + node.shared_bytes,
        "resident_blocks": resident,
        "part_of_the_card": max(0.001, round(fits, 3)),
        "instructions_a_warp": round(counts["issued"] / counts["simulated_blocks"] / block_warps),
        **{key: round(value, 3) for key, value in counts.items()},
        "cycles": round(cycles),
        "seconds": KERNEL_START + cycles / CLOCK,
    }


def show(title, rows, seconds):
    errors = sum("error" in row for row in rows)
    answer = f"{seconds * 1e6:.0f} us a step, predicted" if not errors else f"{errors} kernels do not compile"
    print(f"\n{title}: {answer}; {len(rows)} nodes")
    print(f"{'kernel (predicted)':34}{'blocks x threads':>18}{'registers':>11}{'resident':>10}", end="")
    print(f"{'instructions/warp':>19}{'issuing':>9}{'start us':>10}{'us':>8}")
    for row in rows:
        if "error" in row:
            print(f"{row['name']:34}does not compile: {row['error']}")
            continue
        text = f"{row['name']:34}"
        if row["kind"] == "kernel":
            shape = f"{np.prod(row['grid'])} x {np.prod(row['block'])}"
            text += f"{shape:>18}{row['registers']:>11}{row['resident_blocks']:>10}{row['instructions_a_warp']:>19}"
            text += f"{row['part_issuing']:>9.0%}" if "part_issuing" in row else " " * 9
        print(f"{text:101}{row['start'] * 1e6:>10.1f}{row['seconds'] * 1e6:>8.2f}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="lenet", choices=sorted(NETWORKS))
    parser.add_argument("--precision", default="float32", help="float32, mixed; several with commas")
    parser.add_argument("--batch", default="256", help="images of the whole batch; several with commas")
    parser.add_argument("--cards", default="1", help="one or several numbers of H100s, connected by NVLink")
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument(
        "--include", action="append", default=[], help="a folder of headers that CuPy would not look in"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    predictor, steps = Predictor(options.include), []
    for precision in options.precision.split(","):
        for batch in map(int, options.batch.split(",")):
            for cards in map(int, options.cards.split(",")):
                nodes = record_step(NETWORKS[options.network], batch, precision, cards, options.optimizer)
                rows, seconds = predict_step(nodes, predictor)
                title = f"{options.network}, {precision}, batch {batch}, {cards} x H100"
                show(title, rows, seconds)
                errors = any("error" in row for row in rows)
                settings = {"network": options.network, "precision": precision, "batch": batch, "cards": cards}
                steps.append({**settings, "predicted_seconds": None if errors else seconds, "predicted": rows})
    if options.json:
        constants = {
            name: value for name, value in vars(multiprocessor).items() if name.isupper() and np.isscalar(value)
        }
        constants |= {
            name: getattr(step, name) for name in "KERNEL_START NODE DRAM L2 LINK LINK_LATENCY ACROSS".split()
        }
        write_json(options.json, {"what": "predicted, not measured", "constants": constants, "steps": steps})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
