"""One multiprocessor of an H100, cycle by cycle: how long the warps' traces take on it.

Four schedulers each issue one instruction a cycle of a warp that is ready. A warp
is ready when the stall that its last instruction asked for is over and the
barriers that the next one waits for are down (see sass.py), so latencies that the
machine code does not hide are exposed here, and those that other warps fill are not.
Units are busy for the cycles that an instruction takes them; shared memory and
the way to the second-level cache belong to the whole multiprocessor.
"""

import functools
import heapq

CLOCK = 1.755e9
MULTIPROCESSORS = 132
REGISTERS = 65536
LIMITS = {75: (64, 32, 16), 80: (164, 64, 32), 90: (228, 64, 32), 100: (228, 64, 32), 120: (100, 48, 24)}
"""Of a multiprocessor by architecture: kilobytes of shared memory, warps and blocks that it takes."""
RESERVED_BYTES = 1024
"""Of shared memory, that the system takes for each block, from architecture 80 on."""

L1_LATENCY, L2_LATENCY, SHARED_LATENCY, CONSTANT_LATENCY, SPECIAL_LATENCY = 40, 250, 29, 40, 25
"""Cycles from issue until the result is there, with nobody in the way."""
L2_BYTES, L2_BYTES_ALL = 64, 24
"""A cycle from the second-level cache: to one multiprocessor alone, and to each if all ask."""
QUEUE = 24
"""Cycles of work that the memory unit takes on before it lets a scheduler wait."""
FETCH = 8
"""Cycles for a line of 8 instructions that the multiprocessor has not executed before."""
BARRIER_LATENCY = 20
BLOCK_START = 400
"""Cycles between the end of a block and the first instruction of the next in its place."""
TENSOR_LATENCY = 33

FP32 = "FFMA FADD FMUL HFMA2 HADD2 HMUL2".split()
SPECIAL = "MUFU I2F F2I F2F FRND POPC FLO BREV I2I".split()
ON_MEMORY_UNIT = "LDS STS LDSM STSM LDG STG LDL STL LDGSTS LD ST ATOM ATOMG ATOMS RED SHFL LDC S2R".split()


def tensor_cycles(opcode):
    """Of a tensor core: by the products of an HMMA.mxnxk, at the 62% of the peak that mma.sync reaches on an H100."""
    shape = opcode.split(".")[1]
    m, n, k = {"1688": (16, 8, 8), "16816": (16, 8, 16), "1684": (16, 8, 4), "884": (8, 8, 4)}.get(shape, (16, 8, 16))
    return m * n * k / 512 / 0.62  # products a cycle at the peak


def cost(instruction):
    """(unit, cycles for which a warp takes it) of an instruction; schedulers have one of each unit."""
    name = instruction.opcode.split(".")[0]
    if name in ("HMMA", "IMMA", "DMMA", "BMMA"):
        return "tensor", tensor_cycles(instruction.opcode)
    if name in FP32:
        return "fp32", 1
    if name in SPECIAL:
        return "special", 8
    if name in ON_MEMORY_UNIT:
        return "memory", 4 if name in ("SHFL", "LDC", "S2R") else 2
    if name == "IMAD":
        return "fp32", 2
    if name.startswith("U"):
        return "uniform", 2
    if name in "NOP BRA EXIT BAR BSSY BSYNC DEPBAR LDGDEPBAR WARPSYNC CALL RET BREAK".split():
        return "control", 1
    return "integer", 2


UNITS = ["tensor", "fp32", "special", "memory", "uniform", "control", "integer"]


def blocks_resident(registers, shared_bytes, threads, arch=90):
    """Blocks that a multiprocessor holds at a time. ``registers``: of a thread."""
    kilobytes, most_warps, most_blocks = LIMITS[arch]
    warps = -(-threads // 32)
    registers = -(-registers * 32 // 256) * 256 * -(-warps // 4) * 4  # taken by warps, evenly by schedulers
    shared = -(-(shared_bytes + (RESERVED_BYTES if arch >= 80 else 0)) // 256) * 256
    by_shared = kilobytes * 1024 // shared if shared else most_blocks
    return max(0, min(most_blocks, most_warps // warps, REGISTERS // registers, by_shared))


@functools.cache
def _costs(kernel_code):
    """Of each instruction what `simulate` looks up."""
    found = []
    for instruction in kernel_code:
        unit, cycles = cost(instruction)
        name = instruction.opcode.split(".")[0]
        waits = tuple(i for i in range(6) if instruction.wait_mask >> i & 1)
        matrix = None
        if unit == "tensor":
            matrix = tuple(text.replace(".reuse", "").split(".")[0] for text in instruction.operands[:4])
        kind = {"BAR": 1, "LDGSTS": 4, "LDGDEPBAR": 5, "DEPBAR": 6}.get(name, 0)
        if kind == 0:
            kind = 2 if matrix else 3 if name in ("STG", "ST", "RED") else 0
        left = int(instruction.operands[-1], 0) if kind == 6 and len(instruction.operands) > 1 else 0
        latency = {"LDC": CONSTANT_LATENCY, "S2R": SPECIAL_LATENCY, "SHFL": SPECIAL_LATENCY}.get(name, SHARED_LATENCY)
        found.append(
            (UNITS.index(unit), cycles, instruction.stall, instruction.write_barrier, instruction.read_barrier, waits)
            + (kind, latency, matrix, left)
        )
    return found


class _Warp:
    __slots__ = ("issued", "touched", "at", "barriers", "scheduler", "block", "groups", "matrices", "asked")

    def __init__(self, issued, touched, scheduler, block):
        self.issued, self.touched, self.scheduler, self.block = issued, touched, scheduler, block
        self.at, self.barriers, self.groups, self.matrices, self.asked = 0, [0] * 7, [], {}, 0


class _Block:
    __slots__ = ("left", "waiting", "place")

    def __init__(self, warps, place):
        self.left, self.waiting, self.place = warps, [], place


def simulate(kernel_code, blocks, resident, busy_multiprocessors):
    """Cycles until all ``blocks`` of one multiprocessor are done, ``resident`` at a time, and what was counted.

    A block is a list of warps, each (issued, touched) of `warps.trace`. Returns
    (cycles, {"issued": ..., "fp32": cycles of that unit, ...}), of all schedulers together.
    """
    costs = _costs(kernel_code)
    l2_rate = min(L2_BYTES, L2_BYTES_ALL * MULTIPROCESSORS / busy_multiprocessors)
    free = [0.0] * 4  # when each scheduler may issue again
    units = [[0.0] * len(UNITS) for _ in range(4)]
    shared = l2 = 0.0  # when shared memory and the way to the second-level cache are free
    cached, fetched = set(), [None] * (len(kernel_code) // 8 + 1)
    counted = [0.0] * len(UNITS)
    memory_cycles = l2_bytes = issued_count = 0
    heap, number, end = [], 0, 0.0
    to_come = iter(blocks)

    def start(place, time):
        nonlocal number
        block = next(to_come, None)
        if block is None:
            return
        state = _Block(len(block), place)
        for i, (issued, touched) in enumerate(block):
            warp = _Warp(issued, touched, (place * len(block) + i) % 4, state)
            number += 1
            heapq.heappush(heap, (time, number, warp))

    for place in range(resident):
        start(place, 0.0)
    while heap:
        time, _, warp = heapq.heappop(heap)
        pc = warp.issued[warp.at]
        unit, cycles, stall, write_barrier, read_barrier, _, kind, latency, matrix, left = costs[pc]
        own = units[warp.scheduler]
        earliest = max(time, free[warp.scheduler], own[unit])
        line = pc >> 3
        if fetched[line] is None:
            fetched[line] = time + FETCH
        if fetched[line] > earliest:
            earliest = fetched[line]
        touched = warp.touched[warp.at]
        if touched is not None and shared - QUEUE > earliest:
            earliest = shared - QUEUE
        if matrix:
            earliest = max(earliest, max((warp.matrices.get(name, 0) for name in matrix[1:]), default=0))
        if earliest > time:
            number += 1
            heapq.heappush(heap, (earliest, number, warp))
            continue

        free[warp.scheduler] = time + 1
        own[unit] = time + cycles
        counted[unit] += cycles
        issued_count += 1
        done = time + latency
        read = time + 8
        if touched is not None:
            waves, sectors = touched if type(touched) is tuple else (touched, None)
            shared = max(shared, time + 4) + waves
            memory_cycles += waves
            read = shared + 4
            done = shared - 4 + SHARED_LATENCY
            if sectors is not None:
                if kind == 3:
                    missing = len(sectors)
                else:
                    new = [sector for sector in sectors if sector not in cached]
                    cached.update(new)
                    missing = len(new)
                done = shared + L1_LATENCY
                if missing:
                    l2 = max(l2, shared) + missing * 32 / l2_rate
                    l2_bytes += missing * 32
                    done = l2 + L2_LATENCY
        if write_barrier < 6 and done > warp.barriers[write_barrier]:
            warp.barriers[write_barrier] = done
        if read_barrier < 6 and read > warp.barriers[read_barrier]:
            warp.barriers[read_barrier] = read
        if matrix:
            warp.matrices[matrix[0]] = time + TENSOR_LATENCY
        elif kind == 4:
            warp.asked = max(warp.asked, done)
        elif kind == 5:
            warp.groups.append(warp.asked)

        warp.at += 1
        ready = time + stall
        if kind == 6 and warp.groups:
            ready = max([ready, *warp.groups[: len(warp.groups) - left]])
        block = warp.block
        if warp.at == len(warp.issued):
            block.left -= 1
            end = max(end, time)
            if block.left == 0:
                start(block.place, time + BLOCK_START)
        else:
            for barrier in costs[warp.issued[warp.at]][5]:
                if warp.barriers[barrier] > ready:
                    ready = warp.barriers[barrier]
            if kind == 1:
                block.waiting.append((ready, warp))
            else:
                number += 1
                heapq.heappush(heap, (ready, number, warp))
        if block.waiting and len(block.waiting) == block.left:
            together = time + BARRIER_LATENCY
            for ready, waiting in block.waiting:
                number += 1
                heapq.heappush(heap, (max(ready, together), number, waiting))
            block.waiting = []
    counts = dict(zip(UNITS, counted, strict=True), issued=issued_count, shared=memory_cycles, l2_bytes=l2_bytes)
    return end, counts
