"""How far is a search from the best? Steps of all-gathers that are searched, beside the fewest that there can be.

    python benchmarks/invent_gap.py --json benchmarks/results/invent_gap.json

On random connected networks, from fixed seeds, both spread the chunks of each device, where a step is the time in which
the narrowest wire carries a chunk: the search of the package, the best of twenty tries, and `fewest_steps`, which
proves that one fewer is too few.
"""

import argparse
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import scipy
from compare_splits import circumstances

from d2lmgpu.collectives import fewest_steps, prove
from d2lmgpu.collectives.bounds import cuts_of
from d2lmgpu.collectives.search import Search, forwards
from d2lmgpu.collectives.wires import wired
from d2lmgpu.language.actions import chunk_bounds
from d2lmgpu.output import as_json

KINDS = {
    "equal wires": {"devices": (3, 6), "widths": [1], "parts": 1},
    "uneven wires, two chunks": {"devices": (3, 8), "widths": [1, 2, 4], "parts": 2},
    "one-way wires": {"devices": (3, 8), "widths": [1], "parts": 1, "one_way": True},
}
"""Of networks: the least and most devices, wires in units of `BANDWIDTH`, and chunks of each device.

Each width is a multiple of all smaller ones, so that a step takes as long on each wire: `fewest_steps` rounds.
"""

BANDWIDTH, N = 25e9, 1_680_000  # elements: every number of chunks divides them
TRIES = 20


def network_of(seed, devices, widths, one_way=False):
    """A tree and up to twice as many more wires as devices; of one-way wires a circle and as many."""
    rng = random.Random(seed)
    k = rng.randint(*devices)
    order = rng.sample(range(k), k)
    pairs = (
        [*zip(order, order[1:] + order[:1], strict=True)] if one_way else [(rng.randrange(i), i) for i in range(1, k)]
    )
    pairs += [tuple(rng.sample(range(k), 2)) for _ in range(rng.randint(0, 2 * k))]
    wires = {pair if one_way else tuple(sorted(pair)): rng.choice(widths) * BANDWIDTH for pair in pairs}
    count = len(wires)
    if one_way:
        wires |= {(b, a): 0.0 for a, b in wires if (b, a) not in wires}
    return wired(wires, 2e-6, name=f"{k} devices, {count} wires, seed {seed}"), count


def searched(network, parts):
    """The schedule of fewest steps that the search finds, in so many tries of each manner; and the steps of each."""
    bounds, nbytes = chunk_bounds(N, network.k * parts), 4 * N / (network.k * parts)
    search = Search(cuts_of(network), np.repeat(np.arange(network.k), parts), nbytes)
    window, manners = nbytes / network.bandwidth.min(), (False, True)[: 1 + search.is_uneven]  # as `invent` does
    tries = [search.run(window, seed, patient)[0] for seed in range(TRIES) for patient in manners]
    return forwards(min(tries, key=len), bounds), [len(steps) for steps in tries]


def compare(kind, seed):
    """A row of the table."""
    parts = kind["parts"]
    network, wires = network_of(seed, **{name: value for name, value in kind.items() if name != "parts"})
    begin = time.perf_counter()
    found, tries = searched(network, parts)
    between = time.perf_counter()
    fewest = fewest_steps(network, N, parts)
    end = time.perf_counter()
    for schedule in (found, fewest):
        prove(schedule, network.k, N, goal="all_gather")
    steps = {"best_try": len(found), "first_try": tries[0], "fewest": len(fewest)}
    seconds = {"tries": round(between - begin, 4), "fewest": round(end - between, 4)}
    return {"seed": seed, "devices": network.k, "wires": wires, "steps": steps, "seconds": seconds}


def histogram(rows, column):
    """By the steps that this is above the fewest how many networks there are."""
    return dict(sorted(Counter(row["steps"][column] - row["steps"]["fewest"] for row in rows).items()))


def main():
    parser = argparse.ArgumentParser(description="Steps of searched all-gathers beside the fewest.")
    parser.add_argument("--networks", type=int, default=100, help="of each kind")
    parser.add_argument("--note", default="", help="what should be known of the machine, such as that it was busy")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result, lines = {**circumstances(options.note), "tries": TRIES, "kinds": {}}, []
    result["versions"]["scipy"] = scipy.__version__
    for name, kind in KINDS.items():
        rows = [compare(kind, seed) for seed in range(options.networks)]
        above = {column: histogram(rows, column) for column in ("first_try", "best_try")}
        seconds = {column: round(sum(row["seconds"][column] for row in rows), 2) for column in ("tries", "fewest")}
        print(f"{name}: {seconds['tries']} s to search, {seconds['fewest']} s to find and prove the fewest")
        for column, what in (("first_try", "the first try"), ("best_try", f"the best of {TRIES}")):
            for steps, count in above[column].items():
                bar = "#" * -(-60 * count // len(rows))
                print(f"  {what:14} {steps} steps above the fewest: {count:4d} {bar}", flush=True)
        result["kinds"][name] = {**kind, "networks": len(rows), "above_the_fewest": above, "seconds": seconds}
        lines += [as_json({"kind": name, **row}) for row in rows]
    if options.json:
        rows = ",\n  ".join(lines)
        options.json.write_text(as_json(result, indent=1)[:-2] + f',\n "rows": [\n  {rows}\n ]\n}}\n')


if __name__ == "__main__":
    main()
