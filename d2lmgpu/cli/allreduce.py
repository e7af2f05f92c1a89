"""``d2lmgpu allreduce``: time allreduce algorithms.

Measures on the devices, in the convention of NCCL-tests: algbw = bytes / time, busbw = algbw * 2(k-1)/k, in GB/s, and
checks every sum. With --on it simulates instead, on a network by name or on the wires in a file (one wire per line,
such as "0-1: 25 GB/s"), and --invent lets the computer find an allreduce for that network.
"""

from pathlib import Path

from ..base.arguments import check_name, shown
from ..cluster import begin_together, cluster
from ..collectives import ALGORITHMS, NAMES, Invented, invented, measure_allreduce
from ..collectives.benchmark import parse_size
from ..collectives.network import TOPOLOGIES, read_wires, topology
from ..collectives.simulate import simulate
from ..collectives.wirings.invent import known_on
from ..devices import parse_devices
from ..pictures.films import write_html
from .inputs import add_devices, find_devices
from .options import add_option, add_output, write_results
from .ranks import join

SUMMING = [name for name in ALGORITHMS if name != "none"]
"""The allreduces that can be simulated."""


def add_to(command):
    """Add the options to the command's parser."""
    also = ", ".join(name for name in NAMES if name not in SUMMING)
    add_devices(command, default="2, or 1 per process if there are several")
    add_option(command, "--algorithms", str, ",".join(SUMMING), f"names; also {also}, and mpi under mpiexec")
    add_option(command, "--sizes", str, "4K,512K,64M", "bytes of the array on each device, separated by commas")
    add_option(command, "--on", str, None, f"simulate, on the wires in a file or on one of {', '.join(TOPOLOGIES)}")
    command.add_argument("--invent", action="store_true", help="also invent an allreduce for the network of --on")
    add_output(command, "--html", "write a page that plays the fastest one on the network of --on, for the last size")


def run(options):
    """Time all algorithms for all sizes, and print a line for each."""
    algorithms = [name.strip() for name in options.algorithms.split(",")]
    sizes = [parse_size(size) for size in options.sizes.split(",")]
    if options.on is not None:
        return _simulate(options, algorithms, sizes)
    for name in ("invent", "html"):
        if getattr(options, name):
            raise ValueError(f"--{name} needs a simulated network; give its name or file, such as --on torus")
    several = begin_together()
    group = join(options) if several else cluster(find_devices(options, "2")[1])
    if group is None:
        return
    rows = measure_allreduce(group, algorithms, sizes)
    if group.rank == 0:
        _report(options, group.places if several else group.mine, rows)
    else:
        list(rows)  # the processes measure together


def _report(options, devices, measured):
    line = "{:>12} {:<19} {:>5} {:>11} {:>11} {:>11}".format
    rows = []
    for row in measured:
        if not rows:
            print(f"float32, sum, in place, on {devices}; busbw = algbw * 2(k-1)/k")
            print(line("bytes", "algorithm", "steps", "seconds", "algbw GB/s", "busbw GB/s"))
        numbers = f"{row.seconds:.6f}", f"{row.algbw:.3f}", f"{row.busbw:.3f}"
        print(line(f"{row.bytes:,}", row.algorithm, row.steps or "-", *numbers), flush=True)
        rows.append(row)
    write_results(options, {"rows": [row.as_dict() for row in rows]})


def _network(options):
    """The network of --on. Raises ValueError if it does not have --devices devices, OSError for an unreadable file."""
    path, asked = Path(options.on), parse_devices(options.devices or "8")
    if not isinstance(asked, int):
        raise ValueError(f"--devices is {shown(options.devices)}; for a simulated network, give a number, such as 16")
    if options.on in TOPOLOGIES:
        network = topology(options.on, asked)
    elif path.is_file():  # and not /dev/zero, which never ends
        network = read_wires(path.read_text(encoding="utf-8", errors="replace"), path.name)
    else:
        raise ValueError(f"--on {path}: there is no such file; networks by name are {', '.join(TOPOLOGIES)}")
    if options.devices and asked != network.k:
        raise ValueError(f"--devices is {asked}, and {options.on} has {network.k}; leave out --devices")
    return network


def _simulate(options, algorithms, sizes):
    for name in algorithms:
        check_name("allreduce to simulate", name, SUMMING)
    network, rows = _network(options), []
    known = known_on(network)
    makers = {name: known[name] for name in (*algorithms, "ring along", "both rings along")}
    if options.invent:
        makers["invented"] = invented(network)
    line = "{:>14} {:<19} {:>5} {:>13} {:>13} {:>7}".format
    print(f"float32, sum, on {network.name}: simulated, not measured; bound: what no allreduce can beat")
    print(line("bytes", "algorithm", "steps", "seconds", "bound", "factor"))
    for nbytes in sizes:
        made = {}
        for name, make in makers.items():
            schedule = make(network.k, nbytes // 4)
            told = simulate(schedule, network)
            made[name] = told.seconds, schedule
            factor = f"{told.seconds / told.bound:.2f}" if told.bound else "-"
            note = f"  {schedule.name}, proved" if isinstance(schedule, Invented) else ""
            row = {"algorithm": name, "devices": network.k, "bytes": nbytes, "steps": len(schedule)}
            rows.append(row | {"seconds": told.seconds, "bound": told.bound})
            seconds = f"{told.seconds:.3e}", f"{told.bound:.3e}"
            print(line(f"{nbytes:,}", name, len(schedule), *seconds, factor) + note, flush=True)
    name, (_, schedule) = min(made.items(), key=lambda pair: pair[1][0])

    def write_page(path, schedule):
        write_html(schedule, network.k, sizes[-1] // 4, path, network, title=name)

    result = {"network": network.name, "times": "simulated, not measured", "rows": rows}
    write_results(options, result, (options.html, write_page, schedule))
