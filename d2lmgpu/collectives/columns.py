"""A step's transfers as columns of numbers, for speed: a ring of 1,024 devices has two million transfers.

Consecutive transfers in a step that differ only in devices and elements become one `TransferColumns`.
"""

import itertools
from array import array
from typing import NamedTuple

import numpy as np

from ..base.arguments import as_whole, check_list, shown
from .actions import MAX_ELEMENTS, Transfer


class InvalidStep(ValueError):
    """Something is wrong in a step; the caller adds the step's number to the message."""


class TransferColumns(NamedTuple):
    """Transfers of ``value`` to ``target`` by ``op``; the other fields are int64 arrays, one number per transfer."""

    value: tuple
    target: tuple
    op: str
    source: np.ndarray
    destination: np.ndarray
    start: np.ndarray
    stop: np.ndarray

    def transfer(self, i):
        """The ``i``-th transfer, as a `Transfer`."""
        numbers = (int(column[i]) for column in self[3:])
        return Transfer(*numbers, self.op, self.value, None if self.target == self.value else self.target)

    @property
    def size(self):
        """The number of elements that each transfer sends."""
        return self.stop - self.start


def columns_of(transfers):
    """The `TransferColumns` of a step's list of ``transfers``, in order. Raises ValueError for anything else."""
    if not transfers:
        return []
    try:
        if {*map(type, transfers)} != {Transfer}:
            raise TypeError("not all are transfers")
        *numbers, ops, values, targets = zip(*transfers, strict=True)
        hash((ops[0], values[0], targets[0]))  # lists cannot be keys
        if all(field.count(field[0]) == len(field) for field in (ops, values, targets)):
            # For valid numbers, this takes half as long as NumPy's array.
            columns = [np.frombuffer(array("q", column), np.int64) for column in numbers]
            return [TransferColumns(values[0], targets[0] or values[0], ops[0], *columns)]
    except (TypeError, ValueError, OverflowError):
        wrong = next((t for t in transfers if not _is_transfer(t)), transfers[0])
        raise ValueError(
            f"{shown(wrong)} should be a Transfer(source, destination, start, stop, op), with whole numbers, at most "
            f"{MAX_ELEMENTS:,}, and with tuples as value and target"
        ) from None
    runs = itertools.groupby(transfers, key=lambda t: t[4:])
    return list(itertools.chain.from_iterable(columns_of(list(run)) for _, run in runs))


def _is_transfer(t):
    named = type(t) is Transfer and all(isinstance(field, (str, tuple, type(None))) for field in t[4:])
    return named and None not in (whole := [*map(as_whole, t[:4])]) and max(map(abs, whole)) <= MAX_ELEMENTS


def check_steps(schedule):
    """Yield each step of a schedule as lists of transfers and of `TransferColumns`, with numbers as Python's own.

    Raises ValueError if a step is wrong.
    """
    for number, step in enumerate(check_list("schedule", schedule, of="steps, which are lists of transfers"), 1):
        step = check_list(f"schedule: step {number}", step, of="transfers")
        try:
            moves = columns_of(step)
        except ValueError as error:
            raise ValueError(f"step {number}: {error}") from None
        if not {int}.issuperset(map(type, itertools.chain.from_iterable(t[:4] for t in step))):
            step = [each.transfer(i) for each in moves for i in range(len(each.source))]
        yield step, moves


def check_columns(moves, k, size_of):
    """Raise `InvalidStep` unless all transfers are between two of k devices, within the value, and add or copy.

    ``size_of(value)``: how many elements the value has, or None if there is no such value.
    """
    for each in moves:
        n = size_of(each.value)
        if n is None or (each.target != each.value and size_of(each.target) != n):
            raise InvalidStep(f"{each.transfer(0)!r}: there is no such value")
        if each.op not in ("add", "copy"):
            raise InvalidStep(f"{each.transfer(0)!r} should add or copy")
        ends = np.minimum(each.source, each.destination), np.maximum(each.source, each.destination)
        for wrong, what in (
            ((ends[0] < 0) | (ends[1] >= k), f"names a device that is not among 0 … {k - 1}"),
            ((ends[0] == ends[1]) & (each.target == each.value), "sends from a device to itself"),
            ((each.start < 0) | (each.start > each.stop) | (each.stop > n), f"is not within the elements 0 … {n}"),
        ):
            if wrong.any():
                raise InvalidStep(f"{each.transfer(np.argmax(wrong))!r} {what}")


def sent_by(columns, k, bytes_of=lambda value: 1):
    """How many elements each of k devices sends to others; or how many bytes, with ``bytes_of(value)`` per element."""
    sent = np.zeros(k, np.int64)
    for each in itertools.chain.from_iterable(columns):
        np.add.at(sent, each.source, bytes_of(each.value) * each.size * (each.source != each.destination))
    return sent.tolist()


def edges_of(columns, edges):
    """Where to cut a value so that all in the lists ``columns`` send whole pieces; ``edges`` are included."""
    found = {*edges}
    for each in itertools.chain.from_iterable(columns):
        found.update(each.start.tolist(), each.stop.tolist())
    return np.array(sorted(found), np.int64)
