"""Answers: is an invented allreduce faster than the best that is known, and how near is it to what none can beat?

    python benchmarks/invent.py --json benchmarks/results/invent.json --page docs/inventing.md

On ten networks, with three sizes. All times are simulated, which no other work on the machine changes; only how long
inventing took is measured.
"""

import argparse
import time

from quoted import circumstances, fill, write

from d2lmgpu.collectives import invent
from d2lmgpu.collectives.network import (
    full_switch,
    hypercube,
    machines,
    nvlink_mesh,
    nvlink_ring,
    rewired,
    torus,
)

DGX = nvlink_mesh(25e9, 2e-6)
NETWORKS = {
    "DGX-1": DGX,
    "DGX-1, a pair's wires broken": rewired(DGX, {(0, 4): 0}),
    "ring of 8": nvlink_ring(8, 50e9, 2e-6),
    "ring of 8, a wire broken": rewired(nvlink_ring(8, 50e9, 2e-6), {(7, 0): 0}),
    "torus 4 × 4": torus(4, 4),
    "torus 4 × 4, a wire at a tenth": rewired(torus(4, 4), {(0, 1): 5e9}),
    "torus 8 × 8": torus(8, 8),
    "hypercube of 64": hypercube(6),
    "switch, 8 devices": full_switch(8, 150e9, 2e-6),
    "2 servers of 8, slow between": machines(16, 8, 150e9, 12.5e9, 2e-6, 10e-6),
}
SIZES = {"LeNet, 516 kB": 129_068, "16 MB": 4_000_000, "1 GB": 250_000_000}
"""Elements of 4 bytes."""


def row_of(name, network, size, n):
    begin = time.perf_counter()
    found = invent(network, n)
    took = time.perf_counter() - begin
    known = {each: seconds for each, seconds in found.considered.items() if each != "invented"}
    best = min(known, key=known.get)
    return {
        "network": name,
        "size": size,
        "bytes": 4 * n,
        "best_known": best,
        "known_seconds": known[best],
        "ring_along_seconds": min(known["ring along"], known["both rings along"]),
        "invented_seconds": found.considered["invented"],
        "taken": found.name,
        "taken_seconds": found.seconds,
        "bound_seconds": found.bound,
        "steps": len(found),
        "inventing_took": took,
    }


SHOWN = "LeNet"
"""With what the size begins of which the page shows the rows; the results have all sizes."""


def table(result):
    """For the page."""
    lines = [
        f"{result['date']}, commit {result['commit']}; the search times (last column) were measured on "
        f"{result['machine']}.",
        "",
        "| network | best known, µs | invented, µs | bound, µs | best / bound | search, s |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        if not row["size"].startswith(SHOWN):
            continue
        us = {name: f"{1e6 * row[f'{name}_seconds']:,.1f}" for name in ("known", "invented", "bound")}
        better = "invented" if row["taken"] == "invented" else "known"
        us[better] = f"**{us[better]}**"
        lines.append(
            f"| {row['network']} | {us['known']} (`{row['best_known']}`) | {us['invented']} | {us['bound']} | "
            f"{row['taken_seconds'] / row['bound_seconds']:.2f} | {row['inventing_took']:.1f} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="Invented allreduces beside the best known and the bound, simulated.")
    parser.add_argument("--networks", type=int, default=len(NETWORKS), metavar="N", help="only the first so many")
    parser.add_argument("--note", default="", help="what should be known of the machine, such as that it was busy")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--page", metavar="FILE", help="write the table into this page of the documents")
    options = parser.parse_args()
    chosen = [*NETWORKS.items()][: options.networks]
    rows = [row_of(name, network, size, n) for name, network in chosen for size, n in SIZES.items()]
    result = circumstances(options.note) | {"rows": rows}
    print(table(result))
    if options.json:
        write(options.json, result)
    if options.page:
        fill(options.page, "invented", table(result))


if __name__ == "__main__":
    main()
