"""``d2lmgpu allreduce``: time allreduce algorithms.

On the devices, in the convention of NCCL-tests: algbw = bytes / time, busbw = algbw * 2(k-1)/k, in GB/s. Every sum is
checked.
"""

import collections

from ..cluster import begin_together, cluster, measure_across
from ..collectives import ALGORITHMS, NAMES, TRAINING_NAMES, measure_allreduce, parse_size, plot_measurements
from ..output import check_plot
from .options import add_devices, add_option, add_output, find_devices, write_results
from .ranks import join


def add_to(command):
    """Add the options to the command's parser."""
    summing = ",".join(name for name in TRAINING_NAMES if name in ALGORITHMS)
    also = ", ".join(name for name in NAMES if name not in summing.split(","))
    add_devices(command, default="2, or 1 of each of several processes")
    help = f"names with commas between; also {also}, and mpi under mpiexec"
    add_option(command, "--algorithms", str, summing, help, (*NAMES, "mpi"))
    add_option(command, "--sizes", str, "4K,512K,64M", "bytes of the array on each device, with commas between")
    add_output(command, "--json", "write the rows as JSON")
    add_output(command, "--plot", "plot time and bandwidth by size (.png, .svg or .pdf)", check=check_plot)


def run(options):
    """Time all algorithms for all sizes, a line each."""
    algorithms = [name.strip() for name in options.algorithms.split(",")]
    sizes = [parse_size(size) for size in options.sizes.split(",")]
    several = begin_together()
    everybody = join(options) if several else cluster(find_devices(options, "2")[1])
    if everybody is None:
        return
    for algorithm in algorithms:
        everybody.across(algorithm)  # or an error before anything is measured
    what = algorithms, sizes
    rows = measure_across(everybody, *what) if everybody.size > 1 else measure_allreduce(everybody.mine, *what)
    if everybody.rank == 0:
        _report(options, everybody.places if several else everybody.mine, rows)
    else:
        collections.deque(rows, maxlen=0)


def _report(options, devices, measured):
    line = "{:>12} {:<19} {:>5} {:>11} {:>11} {:>11}".format
    rows = []
    for row in measured:
        if not rows:
            print(f"float32, sum, in place, on {devices}; busbw = algbw * 2(k-1)/k")
            print(line("bytes", "algorithm", "steps", "seconds", "algbw GB/s", "busbw GB/s"))
        steps = "-" if row.steps is None else row.steps
        speeds = (f"{row.seconds:.6f}", f"{row.algbw:.3f}", f"{row.busbw:.3f}")
        print(line(f"{row.bytes:,}", row.algorithm, steps, *speeds), flush=True)
        rows.append(row)
    write_results(options, {"rows": [row.as_dict() for row in rows]}, plot=lambda: plot_measurements(rows))
