"""Allreduces across hosts: flat ring and hierarchy, as measured, and as simulated from messages.

    python benchmarks/measure_hosts.py --json benchmarks/results/cpu_hosts.json --page docs/cluster.md

Makes hosts of network namespaces (hosts.py) whose wires have two bandwidths. On each, mpiexec starts this script again,
which measures what messages cost, predicts each allreduce from that, and then measures it. Rounds are in turn; quoted
are medians. It takes about two minutes, and wants a machine that has nothing else to do.
"""

import argparse
import statistics

from compare_splits import circumstances, fill
from hosts import Hosts, told_by
from messages import measure_wires, network_of

import d2lmgpu as d2l
from d2lmgpu.base.files import as_json, write_json
from d2lmgpu.collectives import measure_allreduce, simulate

BANDWIDTHS = (100, 1000)
"""Mbit/s."""
ALGORITHMS = ("ring", "hierarchical")
SIZES = (4 * 129_068, 2**22)
"""Bytes: LeNet's gradients, and 4 MB."""
HOSTS, DEVICES, ROUNDS = 2, 2, 3


def measure(devices, rounds):
    """What one of the processes does; rank 0 prints a line of JSON."""
    cluster = d2l.cluster(devices)
    found = []
    for _ in range(rounds):
        wires = measure_wires(cluster)
        rows = list(measure_allreduce(cluster, ALGORITHMS, SIZES))
        found.append((wires, rows))
    network = [network_of(wires, devices)(len(cluster)) for wires, _ in found]
    result = {
        "hosts": len(set(cluster.hosts)),
        "devices_per_host": devices,
        "wires": found[-1][0].as_dict(),
        "rows": [],
    }
    for number, row in enumerate(found[0][1]):
        schedule = cluster.schedules(row.algorithm)(len(cluster), row.bytes // 4)
        simulated = [simulate(schedule, each).seconds for each in network]
        measured = [rows[number].seconds for _, rows in found]
        errors = [s / m - 1 for s, m in zip(simulated, measured, strict=True)]
        result["rows"].append(
            {
                "algorithm": row.algorithm,
                "bytes": row.bytes,
                "measured_seconds": statistics.median(measured),
                "simulated_seconds": statistics.median(simulated),
                "error": statistics.median(errors),
                "errors": errors,
            }
        )
    if cluster.rank == 0:
        print(as_json(result))


def across(bandwidth, rounds):
    """What rank 0 says of hosts with such wires."""
    words = [__file__, "--devices", DEVICES, "--rounds", rounds]
    return {"mbit_per_second": bandwidth, **told_by(Hosts(HOSTS, bandwidth), *words)}


def table(result):
    """For the page."""
    about = f"{result['machine']}, {result['date']}, commit {result['commit']}; {HOSTS} hosts of one process with "
    about += f"{DEVICES} virtual devices each. Simulated from messages measured before each round."
    lines = [
        about + (f" **{result['note']}**" if result["note"] else ""),
        "",
        "| wires | algorithm | bytes | measured, ms | simulated, ms |",
        "|---|---|---|---|---|",
    ]
    for found in result["networks"]:
        for row in found["rows"]:
            wire = f"| {found['mbit_per_second']} Mbit/s |"
            ms = [f"{1e3 * row[f'{how}_seconds']:.1f}" for how in ("measured", "simulated")]
            lines.append(f"{wire} `{row['algorithm']}` | {row['bytes']:,} | {ms[0]} | {ms[1]} ({row['error']:+.0%}) |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="Allreduces across hosts, measured and simulated.")
    parser.add_argument("--devices", type=int, metavar="D", help="be one of the processes, with so many devices")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--note", default="", help="what should be known of the machine, such as that it was busy")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--page", metavar="FILE", help="write the table into this page of the documents")
    options = parser.parse_args()
    if options.devices:
        return measure(options.devices, options.rounds)
    result = {
        **circumstances(options.note),
        "networks": [across(bandwidth, options.rounds) for bandwidth in BANDWIDTHS],
    }
    print(table(result))
    if options.json:
        write_json(options.json, result, indent=1)
    if options.page:
        fill(options.page, "hosts", table(result))


if __name__ == "__main__":
    main()
