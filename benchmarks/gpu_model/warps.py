"""What a warp executes: its integers, addresses, predicates and branches are computed, its floating values are not.

`trace` follows one warp of a launch through the machine code and notes each
instruction that is issued, and what its loads and stores touch: how often shared
memory must answer, which sectors of global memory are asked for. Numbers that
floating-point arithmetic gives are unknown; what depends on them is assumed to
differ from lane to lane (every other one is positive, none is a NaN). Loads of
whole numbers (the order of the examples, the number of the step) read the arrays
that the launch was given; of masks every other bit is set.

Lanes that take different ways are followed one way after the other, those at the
lowest address first, which is where compilers let them meet again.
"""

import re

import numpy as np

from .accesses import MEMORY, ONE, local_access, memory_access
from .arithmetic import VALUES
from .operands import is_predicate, predicate, source, writer

LANES = np.arange(32)
ALL = np.ones(32, bool)
LIMIT = 400_000
"""Instructions of a warp, after which something must be wrong."""


WITHOUT_VALUES = set(
    "FFMA FADD FMUL FSEL FMNMX FSWZADD F2F F2FP FRND DADD DMUL DFMA HADD2 HMUL2 HMNMX2 HSET2 HSETP2 "
    "HMMA IMMA MOVM SHFL VOTE VOTEU MATCH REDUX LDSM BAR BSSY BSYNC BREAK BMOV BPT NOP YIELD WARPSYNC NANOSLEEP "
    "DEPBAR LDGDEPBAR MEMBAR ERRBAR CCTL FENCE ENDCOLLECTIVE LEPC ELECT ARRIVES R2B B2R PREEXIT ACQBULK".split()
)
"""Instructions that compute nothing, or what is not known: floating numbers, and what other lanes have."""
FLOATING = {"FFMA", "FADD", "FMUL", "FSEL", "FMNMX"}
"""What these give is `ONE`."""


class Warp:
    """The registers of one warp. Vector registers are arrays of 32 whole numbers, uniform ones are plain ints."""

    def __init__(self, constants, block_shape, block, number, memory):
        self.constants, self.memory = constants, memory
        self.R = [np.zeros(32, np.int64) for _ in range(256)]
        self.P = [np.zeros(32, bool) for _ in range(7)] + [ALL]
        self.UR, self.UP = [0] * 64, [False] * 7 + [True]
        thread = number * 32 + LANES
        x, y, z = (*block_shape, 1, 1)[:3]
        self.local = {}  # address: the lanes' values
        self.special = {"SR_LANEID": LANES, "SR_CgaCtaId": 0, "SRZ": 0, "SR_VIRTID": 0}
        self.special |= {"SR_TID.X": thread % x, "SR_TID.Y": thread // x % y, "SR_TID.Z": thread // (x * y)}
        self.special |= {f"SR_CTAID.{axis}": value for axis, value in zip("XYZ", (*block, 0, 0), strict=False)}
        self.there = thread < x * y * z


def trace(kernel, constants, block_shape, block, number, memory):
    """The instructions that warp ``number`` of a block issues: indices into ``kernel.code``, and what they touch.

    ``constants``: the bytes of constant bank 0. ``block``: its place in the grid.
    ``memory``: a function that gives the values at 32 addresses. The second result
    is a list as long as the first: None, a number of wavefronts in shared memory,
    or (wavefronts, sectors) in global memory.
    """
    steps = _decode(kernel)
    warp = Warp(constants, block_shape, block, number, memory)
    issued, touched, waiting = [], [], {}
    pc, active, last = 0, warp.there, len(steps)
    while True:
        if waiting and min(waiting) <= pc:
            lowest = min(waiting)
            if lowest == pc:
                active = active | waiting.pop(pc)
            else:
                waiting[pc] = waiting[pc] | active if pc in waiting else active
                pc, active = lowest, waiting.pop(lowest)
                continue
        step = steps[pc] if pc < last else None
        if step is None:
            raise RuntimeError(f"{kernel.name}: ran out of its code")
        guard, do, kind = step
        issued.append(pc)
        touched.append(None)
        if len(issued) > LIMIT:
            raise RuntimeError(f"{kernel.name}: more than {LIMIT} instructions in a warp")
        pc += 1
        if do is None:
            continue
        lanes = active if guard is None else active & guard(warp)
        if kind == "value":
            do(warp, lanes)
        elif not lanes.any():
            continue
        elif kind == "touch":
            touched[-1] = do(warp, lanes)
        elif kind == "exit":
            active = active & ~lanes
        else:  # a branch
            lanes, target = do(warp, lanes)
            stay = active & ~lanes
            if lanes.any():
                if stay.any():
                    waiting[pc] = waiting[pc] | stay if pc in waiting else stay
                pc, active = target, lanes
        if not active.any():
            if not waiting:
                return issued, touched
            pc = min(waiting)
            active = waiting.pop(pc)


_decoded = {}


def _decode(kernel):
    key = id(kernel.code)
    if key not in _decoded:
        _decoded[key] = [_step(i, instruction, kernel.labels) for i, instruction in enumerate(kernel.code)], kernel
    return _decoded[key][0]


def _step(index, instruction, labels):
    """(guard, function, kind) of an instruction; the function is None if nothing is to be computed."""
    opcode, operands = instruction.opcode, instruction.operands
    guard = None if instruction.guard == "PT" else predicate(instruction.guard)
    name, *modifiers = opcode.split(".")
    if name == "EXIT":
        return guard, True, "exit"
    if name == "RET":
        back = source(operands[-1].split()[0])
        return guard, lambda warp, lanes: (lanes, int(back(warp)[np.argmax(lanes)]) // 16), "branch"
    if name in ("BRA", "CALL", "JMP", "BRX"):
        if "DIV" in modifiers or "CONV" in modifiers:
            return guard, None, None
        target = labels[re.search(r"`\((.*)\)", operands[-1])[1]]
        condition = predicate(operands[0]) if len(operands) > 1 else None
        if condition is None:
            return guard, lambda warp, lanes: (lanes, target), "branch"
        return guard, lambda warp, lanes: (lanes & condition(warp), target), "branch"
    if name in ("LDL", "STL"):
        return guard, local_access(name, modifiers, operands), "touch"
    if name in MEMORY:
        return guard, memory_access(name, modifiers, operands), "touch"
    if name == "R2P":
        return guard, _to_predicates(operands), "value"
    uniform = name.startswith("U") and name[1:] in VALUES
    function = VALUES.get(name[1:] if uniform else name)
    if name in FLOATING and re.match(r"R\d", operands[0]):
        target = int(re.match(r"R(\d+)", operands[0])[1])
        return guard, lambda warp, lanes: warp.R.__setitem__(target, ONE), "value"
    if function is None:
        if (name[1:] if uniform else name) not in WITHOUT_VALUES:
            raise NotImplementedError(f"{opcode} {', '.join(operands)}: what does it compute? See arithmetic.py")
        return guard, None, None
    return guard, _computation(function, name, modifiers, operands), "value"


def _to_predicates(operands):
    """R2P PR, R7.B1, 0xc: predicates 2 and 3 are those bits of the register's byte 1."""
    register, _, byte = operands[1].partition(".B")
    read, mask = source(register), int(operands[2], 0)
    writers = {i: writer(f"P{i}", False) for i in range(7) if mask >> i & 1}

    def do(warp, lanes):
        bits = read(warp) >> 8 * int(byte or 0)
        for i, write in writers.items():
            write(warp, lanes, np.broadcast_to(bits >> i & 1 != 0, 32))

    return do


def _computation(function, name, modifiers, operands):
    """A function of (warp, lanes) that computes and writes the results of an instruction."""
    wide = "WIDE" in modifiers or "64" in modifiers
    operands = list(operands)
    targets = [operands.pop(0)]
    if "SETP" in name or name.endswith("PLOP3"):
        targets.append(operands.pop(0))
    elif "LOP3" in name and is_predicate(targets[0]):  # LOP3 P0, R1, ...
        targets.insert(0, operands.pop(0))
    elif name != "FCHK":
        while is_predicate(operands[0]) and len(targets) < 3:
            targets.append(operands.pop(0))
    sources = []
    for i, text in enumerate(operands):
        if is_predicate(text):
            sources.append(predicate(text))
        elif text == "PR":
            sources.append(lambda warp: sum(np.where(warp.P[i], 1 << i, 0) for i in range(7)))
        elif text.startswith("SR"):
            sources.append((lambda key: lambda warp: warp.special.get(key, 0))(text))
        elif text.startswith(("desc", "`", "[")):
            return None
        else:
            pair = name.lstrip("U") == "IMAD" and i == 2 and ("WIDE" in modifiers or "HI" in modifiers)
            pair = pair or ("LDC" in name and wide)
            sources.append(source(text, wide=pair))
    writers = [writer(text, wide) for text in targets]

    def do(warp, lanes):
        results = function(modifiers, *(read(warp) for read in sources))
        if not isinstance(results, tuple):
            results = (results,)
        for write, value in zip(writers, results, strict=False):
            write(warp, lanes, value)

    return do
