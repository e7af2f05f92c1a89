"""An allreduce invented for hosts of which one has a slow wire: beside ring and hierarchy, predicted and measured.

    python benchmarks/invent_hosts.py --json benchmarks/results/cpu_invent_hosts.json --page docs/inventing.md

Makes hosts of network namespaces (hosts.py); the wire of the last is ten times slower. There mpiexec starts this script
again, which measures the wires, invents an allreduce for what it has found, predicts each allreduce's time and measures
it, all in turn in each round. Quoted are medians, and the least and the most. It takes a few minutes, and wants a
machine that has nothing else to do.
"""

import argparse
import itertools
import math
import statistics

from compare_splits import circumstances, fill
from hosts import Hosts, told_by
from messages import LEVELS, ROUNDS as MESSAGES, measure_wires, time_messages

import d2lmgpu as d2l
from d2lmgpu.base.files import as_json, write_json
from d2lmgpu.cluster import gather
from d2lmgpu.collectives import bound, invented, measure_allreduce, simulate
from d2lmgpu.collectives.network import read_wires

BANDWIDTHS = 100, 100, 100, 10
"""Mbit/s, of each host's wire."""
ALGORITHMS = ("ring", "hierarchical", "tree", "halving_doubling")
BYTES = (2**16, 4 * 129_068)
"""64 kB, and LeNet's gradients."""
ROUNDS = 3
SIZES = 2**12, 2**16, 2**18
"""The sizes, in bytes, of the messages that are timed: small ones, since the wires are slow."""


def measure_each(cluster, nbytes, latency):
    """The seconds per byte of each host's wire: those of its fastest exchange with another host."""
    first = {place.host: i for i, place in reversed([*enumerate(cluster.places)])}
    best = dict.fromkeys(cluster.hosts, math.inf)
    for (a, i), (b, j) in itertools.combinations(sorted(first.items(), key=lambda item: item[1]), 2):
        one, more = (time_messages(cluster, i, j, nbytes // 2, rounds) for rounds in (1, MESSAGES))
        times = gather(cluster, [[((more - one) / (MESSAGES - 1) - latency) / nbytes]] * len(cluster.mine))
        best |= {host: min(best[host], max(float(times[i, 0]), 1e-15)) for host in (a, b)}
    return list(best.values())


def wiring_of(cluster, wires, per_host):
    """A text for `read_wires`: the devices of a `Cluster`, connected according to the measured ``wires``;
    ``per_host``: the seconds per byte of each host's wire.

    Each device of a process has a wire to a switch that stands for the process's memory; the processes of a host have
    wires to a second switch, and the hosts to a third.
    """

    def line(a, b, seconds_per_byte):
        return f"{a}-{b}: {1e-6 / max(seconds_per_byte, 1e-15):.3f} MB/s"

    inner, outer, *_ = [wires.seconds_per_byte[wires.level(name)] for name in LEVELS]
    hosts = [*dict.fromkeys(cluster.hosts)]
    lines = [f"latency: {1e6 * max(0.0, *wires.latency.values(), 0.0):.3f} us"]
    lines += [line(i, f"process {rank}", inner) for i, rank in enumerate(cluster.owners)]
    for rank, host in enumerate(cluster.hosts if cluster.size > 1 else ()):
        lines.append(line(f"process {rank}", f"host {hosts.index(host)}", outer))
    for number, seconds_per_byte in enumerate(per_host):
        lines.append(line(f"host {number}", "network", seconds_per_byte))
    return "\n".join(lines)


def measure(devices, rounds):
    """What one of the processes does; rank 0 prints a line of JSON."""
    cluster = d2l.cluster(devices)
    found = {}
    for _ in range(rounds):
        wires = measure_wires(cluster, SIZES)
        wiring = wiring_of(cluster, wires, measure_each(cluster, SIZES[-1], wires.latency["hosts"]))
        network = read_wires(wiring)
        algorithms = [*ALGORITHMS, invented(network)]
        for row in measure_allreduce(cluster, algorithms, BYTES):
            n = row.bytes // 4
            algorithm = row.algorithm if row.algorithm in ALGORITHMS else algorithms[-1]
            schedule = cluster.schedules(algorithm)(len(cluster), n)
            each = found.setdefault((row.algorithm, row.bytes), [])
            each.append((row.seconds, simulate(schedule, network).seconds, bound(network, n)))
    rows = []
    for (algorithm, nbytes), each in found.items():
        measured, simulated, bounds = map(list, zip(*each, strict=True))
        row = {"algorithm": algorithm, "bytes": nbytes, "measured_seconds": measured, "simulated_seconds": simulated}
        rows.append(row | {"bound_seconds": statistics.median(bounds)})
    if cluster.rank == 0:
        print(as_json({"wiring": wiring, "devices_per_host": devices, "rows": rows}))


def across(devices, rounds):
    """What rank 0 says."""
    words = [__file__, "--process", devices, "--rounds", rounds]
    return {"mbit_per_second": BANDWIDTHS, **told_by(Hosts(len(BANDWIDTHS), BANDWIDTHS), *words)}


def table(result):
    """For the page."""
    wires = ", ".join(map(str, result["mbit_per_second"]))
    lines = [
        f"{result['machine']}, {result['date']}, commit {result['commit']}; hosts of network namespaces whose wires "
        f"carry {wires} Mbit/s, with {result['devices_per_host']} virtual devices each. Medians of "
        f"{len(result['rows'][0]['measured_seconds'])} rounds (least to most)."
        + (f" **{result['note']}**" if result["note"] else ""),
        "",
        "| bytes | allreduce | measured, ms | predicted, ms | bound, ms |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        measured, simulated = (
            sorted(1e3 * each for each in row[f"{how}_seconds"]) for how in ("measured", "simulated")
        )
        lines.append(
            f"| {row['bytes']:,} | `{row['algorithm']}` | {statistics.median(measured):,.0f} ({measured[0]:,.0f} to "
            f"{measured[-1]:,.0f}) | {statistics.median(simulated):,.0f} | {1e3 * row['bound_seconds']:,.0f} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="An allreduce invented for hosts of which one has a slow wire.")
    parser.add_argument("--process", type=int, metavar="D", help="be one of the processes, with so many devices")
    parser.add_argument("--devices", type=int, default=1, help="on each host")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--note", default="", help="what should be known of the machine, such as that it was busy")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--page", metavar="FILE", help="write the table into this page of the documents")
    options = parser.parse_args()
    if options.process:
        return measure(options.process, options.rounds)
    result = circumstances(options.note) | across(options.devices, options.rounds)
    print(table(result))
    if options.json:
        write_json(options.json, result, indent=1)
    if options.page:
        fill(options.page, "invented-hosts", table(result))


if __name__ == "__main__":
    main()
