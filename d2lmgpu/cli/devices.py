"""``d2lmgpu devices``: the table of devices."""

from ..devices import device_table, find_gpus
from ..output import write_json
from .options import check_outputs


def add_to(commands):
    """Add the command to the parser's."""
    command = commands.add_parser("devices", help="list the devices of this machine")
    command.set_defaults(command=run)
    command.add_argument("--json", metavar="FILE", help="write the table as JSON")


def run(options):
    """Print the table; returns the exit code."""
    check_outputs(options.json)
    rows = device_table()
    print(f"{'device':<8} {'memory free':>12} {'total':>9} {'busy':>5}  {'compute':<7}  description")
    for row in rows:
        free, total = (f"{size / 2**30:.1f} GiB" for size in (row.memory_free, row.memory_total))
        busy = "?" if row.busy is None else f"{row.busy:.0f}%"
        print(f"{row.name:<8} {free:>12} {total:>9} {busy:>5}  {row.compute_capability or '-':<7}  {row.description}")
    print("cpu devices are virtual: one a core is listed, any number works, and all share the memory.")
    cards, reason = find_gpus()
    if not cards:
        print(f"no GPU: {reason}.")
    if options.json:
        write_json(options.json, {"devices": [row.as_dict() for row in rows]})
    return 0
