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

from .arithmetic import VALUES
from .operands import address, is_predicate, predicate, source, writer

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
ONE = np.full(32, 0x3F800000)
"""What these give, for code that looks at the bits: a number, and no special case."""


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
        return guard, _local_access(name, modifiers, operands), "touch"
    if name in MEMORY:
        return guard, _memory_access(name, modifiers, operands), "touch"
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


GLOBAL, SHARED = {"LDG", "STG", "LD", "ST", "ATOMG", "RED", "ATOM"}, {"LDS", "STS", "LDSM", "STSM", "ATOMS"}
MEMORY = GLOBAL | SHARED | {"LDGSTS"}


def _memory_access(name, modifiers, operands):
    """A function of (warp, lanes) that says what an access touches, and loads whole numbers."""
    size = next((int(m) // 8 for m in modifiers if m in ("64", "128")), 4)
    size = next((s for m, s in [("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2)] if m in modifiers), size)
    places = [_place(text) for text in operands if "[" in text]
    target = None
    if name in ("LDG", "LD") and re.match(r"R\d", operands[0]):
        target = [
            writer(f"R{int(re.match(r'R([0-9]+)', operands[0])[1]) + i}", False) for i in range(max(1, size // 4))
        ]
    if name == "LDSM":
        size = 16

    def do(warp, lanes):
        addresses = [np.broadcast_to(place(warp), (32,))[lanes] for place in places]
        if name in SHARED:
            if name in ("LDSM", "STSM"):
                matrices = int(modifiers[-1]) if modifiers[-1].isdigit() else 1
                rows = np.broadcast_to(places[0](warp), (32,))[: 8 * matrices]
                return sum(wavefronts(rows[8 * i : 8 * i + 8], 16) for i in range(matrices))
            return wavefronts(addresses[0], size)
        if target is not None:
            for i, write in enumerate(target):
                loaded = np.zeros(32, np.int64)
                loaded[lanes] = warp.memory(addresses[0] + 4 * i, min(size, 4))
                write(warp, lanes, loaded)
        if name == "LDGSTS":
            return wavefronts(addresses[0], size), *sectors(addresses[1], size)[1:]
        return sectors(addresses[0], size)

    return do


def _local_access(name, modifiers, operands):
    """Registers that were spilled: each lane's own memory, which the first-level cache keeps."""
    words = next((int(m) // 32 for m in modifiers if m in ("64", "128")), 1)
    place, register = (operands[0], operands[1]) if name == "STL" else (operands[1], operands[0])
    place, register = _place(place), int(re.match(r"R(\d+|Z)", register)[1].replace("Z", "255"))

    def do(warp, lanes):
        start = int(np.broadcast_to(place(warp), (32,))[np.argmax(lanes)])
        for i in range(words):
            if name == "STL":
                warp.local[start + 4 * i] = warp.R[register + i] if register < 255 else np.zeros(32, np.int64)
            else:
                old = warp.R[register + i]
                warp.R[register + i] = np.where(lanes, warp.local.get(start + 4 * i, ONE), old)
        return words, ()

    return do


def _place(text):
    return address(re.search(r"\[([^\[\]]*)\]$", text.replace("[UR", "[UR"))[1])


def wavefronts(addresses, size):
    """How many cycles shared memory needs: 32 banks of 4 bytes, each one word a cycle, which all who want it get.

    A warp's 32 vectors of 16 bytes take 4 cycles, unless lanes want the same.
    """
    words = np.unique(addresses // 4)
    if size > 4:
        words = np.unique((words[:, None] + np.arange(size // 4)).reshape(-1))
    return int(np.bincount(words % 32).max())


def sectors(addresses, size):
    """(cycles of the first-level cache, which looks up four sectors of 32 bytes in one; the numbers of the sectors)."""
    touched = np.unique(np.concatenate([addresses // 32, (addresses + size - 1) // 32]))
    return -(-len(touched) // 4), tuple(touched.tolist())
