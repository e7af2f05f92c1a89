"""A whole step: kernels wait for those they depend on, and share a card if they run at the same time."""

from . import sass
from .recorder import Memory

KERNEL_START = 1.21e-6
"""Seconds of a kernel before its first instruction and after its last."""
NODE = 1.2e-6
"""Seconds between a graph's node and one that depends on it."""
DRAM = 0.9 * 3.35e12
L2 = 50e6
"""Bytes: what a step touches again comes from the second-level cache if it fits, else from memory."""
LINK, LINK_LATENCY = 450e9, 1.5e-6
"""NVLink 4, one way: bytes a second, and seconds until the first byte is there."""
ACROSS = NODE + LINK_LATENCY
"""As `NODE`, of nodes on two cards: the signal crosses the link, too. Assumed; measure_cards.py measures it."""


def predict_step(nodes, predictor):
    """A row for each node, with its "start" and "seconds", and the time in seconds at which the step ends.

    A row of a kernel that does not compile has an "error", and counts for nothing.
    """
    footprint = {}
    for node in nodes:
        for memory in node.arguments:
            if isinstance(memory, Memory):
                key = node.card, memory.address
                footprint[key] = max(footprint.get(key, 0), memory.nbytes)
    rows = []
    for node in nodes:
        row = {"name": node.name, "kind": node.kind, "card": node.card, "after": list(node.after)}
        row["part_of_the_card"] = 0.1
        if node.kind == "kernel":
            touched = [memory for memory in node.arguments if isinstance(memory, Memory)]
            far = sum(memory.nbytes for memory in touched if memory.card != node.card)
            try:
                row.update(predictor.kernel(node))
            except sass.DoesNotCompile as error:
                row.update(error=_first_error(error), seconds=0.0)
            else:
                if sum(size for (card, _), size in footprint.items() if card == node.card) > L2:
                    nbytes = sum(memory.nbytes for memory in touched)
                    row["seconds"] = max(row["seconds"], KERNEL_START + nbytes / DRAM)
                if far:
                    row["seconds"] = max(row["seconds"], KERNEL_START + LINK_LATENCY + far / LINK)
        elif node.kind == "copy":
            row["seconds"] = LINK_LATENCY + node.nbytes / LINK
        else:
            row["seconds"] = KERNEL_START + node.nbytes / DRAM
        rows.append(row)
    return rows, schedule(rows)


def _first_error(error):
    lines = [line for line in str(error).splitlines() if "error" in line] or str(error).splitlines() or [repr(error)]
    return lines[0][:200]


def schedule(rows):
    """Sets each row's "start", and returns the end of the last.

    A node begins `NODE` after the end of those that it waits for, `ACROSS` if they are on another card. Kernels that
    run on one card at the same time share it: who came first keeps its part, others get what is left.
    """
    ends, running, left = {}, [], {i: row["seconds"] for i, row in enumerate(rows)}
    waiting, now = dict(enumerate(rows)), 0.0

    def begins(row):
        def way(j):
            return NODE if rows[j]["card"] == row["card"] else ACROSS

        return max((ends[j] + way(j) for j in row["after"]), default=0.0)

    while waiting or running:
        for i, row in list(waiting.items()):
            if all(j in ends for j in row["after"]):
                begin = begins(row)
                if begin <= now + 1e-12:
                    row["start"] = now
                    running.append(i)
                    del waiting[i]
        speeds, free = {}, {}
        for i in running:
            part = rows[i]["part_of_the_card"]
            rest = free.get(rows[i]["card"], 1.0)
            speeds[i] = max(0.05, min(1.0, rest / part))
            free[rows[i]["card"]] = max(0.0, rest - part)
        to_come = [begins(row) for row in waiting.values() if all(j in ends for j in row["after"])]
        step = min([left[i] / speeds[i] for i in running] + [begin - now for begin in to_come])
        now += step
        for i in list(running):
            left[i] -= step * speeds[i]
            if left[i] <= 1e-12:
                ends[i] = now
                running.remove(i)
    return max(ends.values(), default=0.0)
