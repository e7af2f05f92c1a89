"""What loads and stores touch: cycles of shared memory, sectors of global memory."""

import re

import numpy as np

from .operands import address, writer

ONE = np.full(32, 0x3F800000)
"""What floating-point arithmetic gives, for code that looks at the bits: a number, and no special case."""

GLOBAL, SHARED = {"LDG", "STG", "LD", "ST", "ATOMG", "RED", "ATOM"}, {"LDS", "STS", "LDSM", "STSM", "ATOMS"}
MEMORY = GLOBAL | SHARED | {"LDGSTS"}


def memory_access(name, modifiers, operands):
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


def local_access(name, modifiers, operands):
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
