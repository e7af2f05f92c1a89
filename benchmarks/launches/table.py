"""The table of compile_kernels.py: a row for launches that take the same of a block, a column for each compiler."""

import collections
import csv
from typing import NamedTuple

from .compiler import blocks_resident

NOISE = 8
"""Registers, the granule in which they are given out: NVRTC takes a few more or less for one and the same source."""


class Row(NamedTuple):
    """Launches that the table has in one row. ``shared``: bytes of a block; ``half``: whether a macro says 16 bits."""

    kernel: str
    threads: int
    half: int
    shared: int

    def __str__(self):
        return f"{self.kernel}<{self.threads}>{', 16 bits' * self.half}, {self.shared} bytes shared"


class Kept(NamedTuple):
    """What the table says of a `Row`. ``registers``: (NVRTC's version, architecture) → (least, most)."""

    launches: int
    registers: dict


HEAD = [*Row._fields, "launches"]


def read(file):
    """{`Row`: `Kept`}."""
    kept = {}
    head, *lines = csv.reader(file.read_text(encoding="ascii").splitlines())
    columns = [(version, int(arch)) for version, arch in (name.split(" sm_") for name in head[len(HEAD) :])]
    for kernel, threads, half, shared, launches, *cells in lines:
        registers = {
            column: tuple(map(int, (cell.split("-") * 2)[:2]))
            for column, cell in zip(columns, cells, strict=True)
            if cell
        }
        kept[Row(kernel, int(threads), int(half), int(shared))] = Kept(int(launches), registers)
    return kept


def with_what_was_found(kept, found, version):
    """The table with other numbers of this version, and without the rows that no version has any more."""
    table = {}
    for row in {*kept, *found}:
        launches, registers = kept.get(row, Kept(0, {}))
        registers = {column: cell for column, cell in registers.items() if column[0] != version}
        if row in found:
            launches = max(map(len, found[row].values()))
            registers |= {(version, arch): (min(r.values()), max(r.values())) for arch, r in found[row].items()}
        if registers:
            table[row] = Kept(launches, registers)
    return table


def write(file, table):
    """A line for each row, in alphabetical order, so that differences can be read."""
    columns = sorted({column for kept in table.values() for column in kept.registers})
    lines = [[*HEAD, *(f"{version} sm_{arch}" for version, arch in columns)]]
    for row, (launches, registers) in sorted(table.items()):
        lines.append([*row, launches, *(as_cell(registers[c]) if c in registers else "" for c in columns)])
    file.write_text("".join(",".join(map(str, line)) + "\n" for line in lines), encoding="ascii")


def as_cell(registers):
    least, most = registers
    return f"{least}" if least == most else f"{least}-{most}"


def compare(found, kept, version, launched, complete=False):
    """Differences between what was found and what is kept, as lines.

    ``launched``: how many launches of the package there are, by (kernel, threads, half). ``complete``: whether all of
    them were compiled, so that the least and the most registers can be compared, too.
    """
    lines = []
    for row, columns in sorted(found.items()):
        for arch, launches in sorted(columns.items()):
            least, most = now = min(launches.values()), max(launches.values())
            before = kept[row].registers.get((version, arch)) if row in kept else None
            if before is None:
                lines.append(f"new: {describe(row, arch, now)}")
                continue
            changed = least <= before[0] - NOISE or most >= before[1] + NOISE
            changed |= complete and (least >= before[0] + NOISE or most <= before[1] - NOISE)
            if changed:
                lines.append(f"changed: {describe(row, arch, before)} -> {describe(row, arch, now)}")
    told = collections.Counter()
    for row, (launches, _) in kept.items():
        told[row[:3]] += launches
    for group in sorted({*launched, *told}):
        if launched[group] != told[group]:
            kernel, threads, half = group
            name = f"{kernel}<{threads}>{', 16 bits' * half}"
            lines.append(f"launches of {name}: {launched[group]}, in the table {told[group]}")
    return lines


def describe(row, arch, registers):
    least, most = registers
    blocks = blocks_resident(most, row.shared, row.threads, arch)
    return f"{row}, sm_{arch}: {as_cell(registers)} registers, {blocks} blocks a multiprocessor"
