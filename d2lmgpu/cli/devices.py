"""``d2lmgpu devices``: list the devices of this machine; with ``--check``, test them."""

from ..devices import device_table, find_gpus
from ..experiments.checkup import check_machine
from .options import write_results


def add_to(command):
    """Add the options to the command's parser."""
    command.add_argument("--check", action="store_true", help="test what training relies on, and report what works")


def run(options):
    """Print the table, or with ``--check`` what works; return the exit code."""
    result, code = _check() if options.check else _list()
    cards, reason = find_gpus()
    if not cards:
        print(f"no GPU: {reason}.")
    write_results(options, result)
    return code


def _list():
    """Print the table; return it and the exit code."""
    rows = device_table()
    print(f"{'device':<8} {'memory free':>12} {'total':>9} {'busy':>5}  {'compute':<7}  description")
    for row in rows:
        sizes = row.memory_free, row.memory_total
        free, total = ("?" if size is None else f"{size / 2**30:.1f} GiB" for size in sizes)
        busy = "?" if row.busy is None else f"{row.busy:.0f}%"
        print(f"{row.name:<8} {free:>12} {total:>9} {busy:>5}  {row.compute_capability or '-':<7}  {row.description}")
    print("cpu devices are virtual: one per core is listed, you can use any number, and all share the memory.")
    return {"devices": [row.as_dict() for row in rows]}, 0


def _check():
    """Test the machine, and print what works; return the results and the exit code, which is 1 if something fails."""
    trials = check_machine()
    print(f"{'device':<20} {'tried':<30} {'seconds':>7}  works")
    for device, tried, works, why, seconds in trials:
        print(f"{device:<20} {tried:<30} {seconds:>7.3f}  {'yes' if works else f'no: {why}'}")
    return {"trials": [trial._asdict() for trial in trials]}, 0 if all(trial.works for trial in trials) else 1
