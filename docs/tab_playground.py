"""The playground of the website's first page: a wiring, an allreduce for it, and what becomes of the two.

`look` and `train` run in the reader's browser, called by site/tab/playground.js; beside what cells tell (tab_cells.py)
they tell ``verdict``: whether the schedule is proved, what is said of it, and rows of a name and simulated seconds.
What the page shows at first, the website's builder finds with the same `look`.
"""

import functools
import inspect
import linecache

import tab_cells

import d2lmgpu as d2l
from d2lmgpu.base.text import several
from d2lmgpu.collectives import ALGORITHMS, ScheduleError, Transfer, chunk_bounds, invent, prove, simulate
from d2lmgpu.collectives.wirings.wires import read_wires
from d2lmgpu.data.fashion_mnist import find_file, read_idx

N = sum(array.size for array in d2l.init_params())
"""The numbers of an array: LeNet's gradients."""

WIRING = "0-1: 25 GB/s\n1-2: 25 GB/s\n2-3: 25 GB/s\n3-0: 25 GB/s\n"
CODE = '''def schedule(k, n):
    """Chunks go round: summed first, then to all."""
    chunks, steps = chunk_bounds(n, k), []
    for op, first in ("add", -1), ("copy", 0):
        for s in range(k - 1):
            step = []
            for i in range(k):
                chunk = chunks[(i + first - s) % k]
                step.append(Transfer(i, (i + 1) % k, *chunk, op))
            steps.append(step)
    return steps
'''
GIVEN = {"d2l": d2l, "Transfer": Transfer, "chunk_bounds": chunk_bounds, "ALGORITHMS": ALGORITHMS, "invent": invent}
"""Names that the reader's code may use, beside ``network``."""

HEIGHT = 640
"""Of the player, in pixels; what is below scrolls in it."""

EXAMPLES, TESTS = 4_000, 1_000
"""Of the 10,000 test images, which are loaded sooner than all: with so many the playground trains, and tests."""


SETTINGS = {"num_epochs": 3, "batch_size": 100, "lr": 0.02, "optimizer": "momentum", "init": "he"}


FILE = "<your schedule>"
"""The name of the reader's code in tracebacks, which begin there."""


def errors_from_the_schedule_on(function):
    @functools.wraps(function)
    def told(wiring, code):
        try:
            function(wiring, code)
        except Exception as error:
            tab_cells.tell(error=tab_cells.told(error, FILE))

    return told


def schedule_of(wiring, code):
    """The `Network` of a wiring's text, and the function ``schedule`` of the reader's code."""
    network = read_wires(wiring, "your wiring")
    linecache.cache[FILE] = len(code), None, code.splitlines(keepends=True), FILE
    names = {"__name__": "schedule", "network": network, **GIVEN}
    exec(compile(code, FILE, "exec"), names)
    if not inspect.isfunction(names.get("schedule")):
        raise NameError("there is no function schedule; write def schedule(k, n): ... that returns a list of steps")
    return network, names["schedule"]


@errors_from_the_schedule_on
def look(wiring, code):
    """Prove the reader's schedule for LeNet's gradients, time it, and play it."""
    network, function = schedule_of(wiring, code)
    k, schedule = network.k, function(network.k, N)
    try:
        proof, says = prove(schedule, k, N), None
    except ScheduleError as error:
        proof, says = None, f"Not an allreduce: {error}"
    if proof is not None:
        busiest, least = 4 * max(proof.sent), 8 * (k - 1) / k * N
        says = f"Proved: all {k} devices end with the sum of all {N:,} gradients, in {several(proof.steps, 'step')}. "
        says += f"The busiest device sends {busiest / 1e3:,.0f} kB; no allreduce of {k} devices can manage with less "
        says += " ".join([f"than {least / 1e3:,.0f} kB.", *proof.wasted])
    found = invent(network, N)
    rows = [
        ["the textbook's, through device 0", found.considered["naive"]],
        ["a ring along the wires", found.considered["ring along"]],
        ["invented for the wiring", found.seconds],
        ["lower bound for any allreduce", found.bound],
    ]
    if proof is not None:
        rows.insert(0, ["yours", simulate(schedule, network).seconds])
    tab_cells.tell(verdict={"proved": proof is not None, "says": says, "rows": rows})
    tab_cells.show(d2l.play(schedule, network, k=k, n=N, title="your schedule", height=HEIGHT))


@errors_from_the_schedule_on
def train(wiring, code):
    """Train LeNet on as many devices as the wiring has, which sum their gradients by the reader's schedule."""
    network, function = schedule_of(wiring, code)
    prove(function(network.k, N), network.k, N)
    X, y = (read_idx(find_file(f"t10k-{name}-ubyte.gz")) for name in ("images-idx3", "labels-idx1"))
    parts = slice(EXAMPLES), slice(EXAMPLES, EXAMPLES + TESTS)
    data = [array[part] for part in parts for array in (X[:, None], y)]
    print(f"{several(network.k, 'device')}, {EXAMPLES:,} images, {several(SETTINGS['num_epochs'], 'epoch')}")
    run = d2l.train(network.k, data=data, algorithm=function, progress=False, **SETTINGS)
    print(f"Of {TESTS:,} other images {run.history.test_accuracy[-1]:.0%} are named right.")
    tab_cells.show_figure(d2l.plot_history(run.history))
