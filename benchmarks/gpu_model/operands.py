"""The operands of machine instructions as functions of a `Warp`: what they read, and where results go."""

import re

import numpy as np

M = 0xFFFFFFFF


def predicate(text):
    """A function that gives a predicate's values."""
    negated, name = text.startswith("!"), text.lstrip("!")
    uniform = name.startswith("U")
    number = 7 if name.endswith("T") else int(name.lstrip("UP"))
    if uniform:
        return lambda warp: np.bool_(warp.UP[number] != negated)
    return (lambda warp: ~warp.P[number]) if negated else (lambda warp: warp.P[number])


def is_predicate(text):
    return re.fullmatch(r"!?U?P[0-7T]", text) is not None


def signed(value):
    return ((value + 0x80000000) & M) - 0x80000000


def source(text, wide=False):
    """A function that gives an operand's value, 0..2^32-1 (2^32 for -0: that carries); with ``wide`` a pair's."""
    text = text.replace(".reuse", "").replace(".H0_H0", "").replace(".H1_H1", "")
    if text.startswith("-") and text[1:2] in "RU|c":
        inner, last = source(text[1:], wide), (1 << 64 if wide else 1 << 32) - 1
        return lambda warp: (~inner(warp) & last) + 1
    if text.startswith("~"):
        inner = source(text[1:])
        return lambda warp: ~inner(warp) & M
    if text.startswith("|"):
        inner = source(text.strip("|"))
        return lambda warp: abs(signed(inner(warp)))
    register = re.match(r"(U?R)(\d+|Z)(\.\w+)*$", text)
    if register:
        if register[2] == "Z":
            return lambda warp: 0
        number, file = int(register[2]), register[1]
        if wide:
            return lambda warp: getattr(warp, file)[number] | getattr(warp, file)[number + 1] << 32
        return (lambda warp: warp.UR[number]) if file == "UR" else (lambda warp: warp.R[number])
    constant = re.match(r"c\[0x(\d+)\]\s*\[(.+)\]", text)
    if constant:
        place = address(constant[2])
        size = 8 if wide else 4
        return lambda warp: _constant(warp, place(warp), size)
    try:
        return (lambda value: lambda warp: value)(int(text, 0) & M)
    except ValueError:  # a floating number: its bits
        number = np.float32(float(text.replace("INF", "inf").replace("QNAN", "nan").replace("+nan", "nan")))
        bits = int(number.view(np.uint32))
        return lambda warp: bits


def _constant(warp, place, size):
    place = int(place if np.ndim(place) == 0 else place[0])
    return int.from_bytes(warp.constants[place : place + size], "little")


def address(text):
    """A function: the sum of what stands in brackets, such as R2.64+UR4+0x10 or R5.X4+-0x8."""
    parts = []
    for part in re.split(r"\+", text):
        name, *modifiers = part.split(".")
        scale = next((int(m[1:]) for m in modifiers if re.fullmatch(r"X\d+", m)), 1)
        parts.append((source(name, wide="64" in modifiers) if not name.startswith("-0x") else int(name, 0), scale))
    return lambda warp: sum((part(warp) if callable(part) else part) * scale for part, scale in parts)


def writer(text, wide):
    if is_predicate(text):
        number = text[-1]
        if number == "T":
            return lambda warp, lanes, value: None
        number = int(number)
        if text.startswith("U"):
            return lambda warp, lanes, value: warp.UP.__setitem__(number, bool(np.all(value)))
        return lambda warp, lanes, value: warp.P.__setitem__(number, np.where(lanes, value, warp.P[number]))
    match = re.match(r"(U?R)(\d+|Z)", text)
    if match is None or match[2] == "Z":
        return lambda warp, lanes, value: None
    number, uniform = int(match[2]), match[1] == "UR"

    def write(warp, lanes, value):
        for i in range(2 if wide else 1):
            part = value >> 32 * i & M
            if uniform:
                warp.UR[number + i] = int(part if np.ndim(part) == 0 else part[np.argmax(lanes)])
            else:
                warp.R[number + i] = np.where(lanes, part, warp.R[number + i])

    return write
