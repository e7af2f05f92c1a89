"""What the instructions compute that decide on addresses and branches: whole numbers and predicates.

Values are arrays of 32 lanes or plain ints, 0..2^32-1. A function gets the opcode's modifiers and the operands, and
returns the result, or several: IADD3's sum and whether it carries. What floating-point arithmetic gives is not known.
"""

import numpy as np

from .operands import M, signed

ODD = np.arange(32) % 2 == 1


def _is_bool(value):
    return np.asarray(value).dtype == np.bool_


def _add(modifiers, a, b, c=0, *carries):
    total = a + b + c + sum(np.where(carry, 1, 0) for carry in carries)
    return total & M, total > M


def _imad(modifiers, a, b, c, *carries):
    if "WIDE" in modifiers or "HI" in modifiers:
        if "U32" in modifiers:
            product = np.asarray(a).astype(np.uint64) * np.asarray(b & M).astype(np.uint64)
            product = (product + np.asarray(c).astype(np.uint64)).astype(np.int64)
        else:
            product = np.asarray(signed(a)) * np.asarray(signed(b)) + np.asarray(c).astype(np.int64)
        return product >> 32 & M if "HI" in modifiers else product
    return a * b + c + sum(np.where(carry, 1, 0) for carry in carries) & M


def _lea(modifiers, a, b, *rest):
    carries = [part for part in rest if _is_bool(part)]
    numbers = [part for part in rest if not any(part is carry for carry in carries)]
    shift = numbers[-1] & 31
    if "SX32" in modifiers:
        total = ((signed(a) << shift) >> 32 & M) + b
    elif "HI" in modifiers:
        high = numbers[0] if len(numbers) > 1 else 0
        total = (((high << 32 | a) << shift) >> 32 & M) + b
    else:
        total = (a << shift & M) + b
    total = total + sum(np.where(carry, 1, 0) for carry in carries)
    return total & M, total > M


def _bits_by_table(table, a, b, c):
    result = 0
    for i in range(8):
        if table >> i & 1:
            result = result | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
    return result


def _lop3(modifiers, a, b, c, table, *rest):
    result = _bits_by_table(table, a, b, c) & M
    return result, result != 0


def _plop3(modifiers, *sources):
    a, b, c, *tables = sources
    a, b, c = (np.asarray(source, bool) for source in (a, b, c))
    return tuple(np.asarray(_bits_by_table(int(table), a, b, c), bool) for table in tables)


def _shf(modifiers, low, shift, high):
    shift = shift & 31 if "W" in modifiers else np.minimum(shift & M, 63 if "64" in "".join(modifiers) else 32)
    if "L" in modifiers:
        if "HI" in modifiers:
            return (high << 32 | low) << shift >> 32 & M
        return low << shift & M
    if "HI" in modifiers:
        if any(m.startswith("S") for m in modifiers):
            return signed(high) >> shift & M
        return high >> shift
    return (high << 32 | low) >> shift & M


_COMPARE = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}


def _isetp(modifiers, a, b, other=True, lower=None):
    if "U32" not in modifiers:
        a, b = signed(a), signed(b)
    else:
        a, b = a & M, b & M
    result = _COMPARE[modifiers[0]](a, b)
    if "EX" in modifiers and lower is not None:  # the high halves of 64 bits; ``lower``: what the low halves said
        relation = modifiers[0] if modifiers[0] in ("EQ", "NE") else modifiers[0][0] + "T"
        result = (a == b) & lower if relation == "EQ" else _COMPARE[relation](a, b) | ((a == b) & lower)
    return _combine(modifiers, result, other)


def _combine(modifiers, result, other):
    def with_other(value):
        if "OR" in modifiers:
            return value | other
        return value ^ other if "XOR" in modifiers else value & other

    return with_other(result), with_other(np.logical_not(result))


def _fsetp(modifiers, *sources):
    """Every other lane's number is larger, none is a NaN, no two are equal."""
    relation = modifiers[0]
    result = ODD if relation in ("GT", "GE", "LT", "LE", "GEU", "LEU") else np.zeros(32, bool)
    others = [s for s in sources if _is_bool(s)]
    return _combine(modifiers, result, others[-1] if others else True)


def _minmax(modifiers, a, b, least):
    if "U32" not in modifiers:
        a, b = signed(a), signed(b)
    return np.where(least, np.minimum(a, b), np.maximum(a, b)) & M


def _prmt(modifiers, a, selector, b):
    pair, result = b << 32 | a, 0
    for i in range(4):
        which = selector >> 4 * i & 15
        byte = pair >> 8 * (which & 7) & 255
        result = result | np.where(which & 8, np.where(byte & 128, 255, 0), byte) << 8 * i
    return result


def _half_pair(modifiers, a, b, high, low=None):
    """HFMA2 with two constants is how compilers write a constant."""
    return 0 if low is None else _half_bits(high) << 16 | _half_bits(low)


def _half_bits(bits):
    return int(np.uint32(bits).view(np.float32).astype(np.float16).view(np.uint16)) if np.ndim(bits) == 0 else 0


def _as_float(bits):
    return np.asarray(bits & M).astype(np.uint32).view(np.float32)


def _float_bits(value):
    return np.asarray(value, np.float32).view(np.uint32).astype(np.int64)


def _to_float(modifiers, a):
    value = np.asarray(a if any(m.startswith("U") for m in modifiers) else signed(a), np.float64)
    rounded = value.astype(np.float32)
    if "RP" in modifiers:
        rounded = np.where(rounded < value, np.nextafter(rounded, np.float32(np.inf)), rounded)
    return _float_bits(rounded)


def _to_int(modifiers, a):
    with np.errstate(all="ignore"):
        return np.clip(np.nan_to_num(np.trunc(_as_float(a).astype(np.float64))), -(2**31), M).astype(np.int64) & M


def _mufu(modifiers, a):
    with np.errstate(all="ignore"):
        return _float_bits(1 / _as_float(a) if "RCP" in modifiers else 1.0)


def _bit_count(modifiers, a):
    return np.bitwise_count(np.asarray(a & M, np.uint64)).astype(np.int64)


def _leading(modifiers, a):
    a = np.asarray(a & M)
    found = np.where(a == 0, M, np.floor(np.log2(np.maximum(a, 1))).astype(np.int64))
    return np.where(a == 0, M, 31 - found) if "SH" in modifiers else found


def _p2r(modifiers, predicates, a, mask):
    return a & ~mask & M | predicates & mask


VALUES = {
    "MOV": lambda modifiers, a, *rest: a & M,
    "IADD3": _add,
    "VIADD": _add,
    "IADD": _add,
    "IMAD": _imad,
    "LEA": _lea,
    "LOP3": _lop3,
    "LOP": _lop3,
    "PLOP3": _plop3,
    "SHF": _shf,
    "SEL": lambda modifiers, a, b, which: np.where(which, a, b) & M,
    "ISETP": _isetp,
    "FSETP": _fsetp,
    "FCHK": lambda modifiers, *sources: np.zeros(32, bool),
    "IMNMX": _minmax,
    "VIMNMX": _minmax,
    "VIADDMNMX": lambda modifiers, a, b, c, least: _minmax(modifiers, a + b & M, c, least),
    "IABS": lambda modifiers, a: abs(signed(a)),
    "PRMT": _prmt,
    "HFMA2": _half_pair,
    "I2F": _to_float,
    "I2FP": _to_float,
    "F2I": _to_int,
    "MUFU": _mufu,
    "POPC": _bit_count,
    "FLO": _leading,
    "S2R": lambda modifiers, value: value,
    "CS2R": lambda modifiers, value: value,
    "LDC": lambda modifiers, value: value,
    "R2UR": lambda modifiers, value: value & M,
    "SGXT": lambda modifiers, a, size: a & (1 << (size & 31)) - 1,
    "BMSK": lambda modifiers, start, size: ((1 << np.minimum(size, 32)) - 1 << start) & M,
    "P2R": _p2r,
}
VALUES["S2UR"] = VALUES["S2R"]
