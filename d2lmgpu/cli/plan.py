"""``d2lmgpu plan``: prove, time and draw a way to split a training step.

Proves a plan of a training step, times it and draws it, without training and without the devices. Times are simulated,
not measured: each computation takes the time of its multiplications at --speed, and messages go over the network of
--on.
"""

from .. import plans
from ..base.arguments import check_name, check_number
from ..base.text import several
from ..collectives import ALGORITHMS
from ..collectives.network import TOPOLOGIES, topology
from ..training.checks import find_network
from ..training.settings import Settings
from ..training.splits import EXAMPLE, SPLITS, plan_of
from .inputs import network_from
from .options import add_option, add_output, add_plot, add_settings, taken, write_results


def add_to(command):
    """Add the options to the command's parser."""
    add_option(command, "--split", str, "data", f"{', '.join(SPLITS)}, or a product such as {EXAMPLE}")
    add_option(command, "--devices", int, 4, "number of devices")
    add_option(command, "--allreduce", str, "ring", f"for a split over data: {', '.join(ALGORITHMS)}")
    add_option(command, "--on", str, "full_switch", f"network between the devices: {', '.join(TOPOLOGIES)}")
    add_option(command, "--speed", float, 1e12, "multiplications per second of each device")
    add_plot(command, "--plot", "draw what each device does, and its memory")
    add_output(command, "--html", "write a page that plays the plan in any browser")
    add_settings(command, names="pipeline micro_batches network width batch_statistics batch_size optimizer".split())


def run(options):
    """Prove and simulate the plan, print the result, and write the files that the options name."""
    check_name("allreduce", options.allreduce, ALGORITHMS)
    check_name("network", options.on, TOPOLOGIES)
    check_number("speed", options.speed, above=0)
    chosen = taken(options, "split", "pipeline", "micro_batches", "batch_statistics")
    settings = Settings(algorithm=options.allreduce, **chosen)
    name, network = find_network(network_from(options.network), **taken(options, "width", "batch_statistics"))
    plan = plan_of(settings, options.devices, network)
    costs = plans.estimate_costs(plan, options.batch_size, options.speed)
    timed = {"network": topology(options.on, plan.k), "costs": costs, **taken(options, "batch_size", "optimizer")}
    simulation = plans.simulate(plan, **timed)
    result = _result(options, plan, name, simulation)
    _print(result, plan)
    page = options.html, lambda path, plan: plans.write_html(plan, path, **timed), plan
    write_results(options, result, page, plot=lambda: plans.draw(plan, **timed))


def _print(result, plan):
    parts = f"{several(plan.k, 'device')}, {several(plan.micro_batches, 'micro-batch')}, batch {result['batch_size']}"
    print(f"{plan.name}: {result['network']} × {result['width']:g}, {parts}, {result['optimizer']}; proved")
    time = f"{1000 * result['seconds']:.4g} ms a step, bubble {result['bubble']:.1%}"
    print(f"on {result['on']}: {time}, {result['bytes'] / 1e6:.3g} MB sent in all")
    print(result["times"])
    line = "{:>6} {:>9} {:>10} {:>12}".format
    print(line("device", "computes", "sends MB", "at most MB"))
    each = zip(result["utilisation"], result["bytes_sent_per_device"], result["peak_memory"], strict=True)
    for i, (busy, sent, peak) in enumerate(each):
        print(line(i, f"{busy:.1%}", f"{sent / 1e6:.3f}", f"{peak / 1e6:.3f}"))


def _result(options, plan, name, simulation):
    times = f"simulated, not measured: devices of {options.speed:g} multiplications per second"
    result = taken(options, "split", "pipeline", "width", "batch_size", "optimizer", "on", "speed")
    result |= {"plan": plan.name, "devices": plan.k, "micro_batches": plan.micro_batches, "network": name}
    result |= {"proved": True, "times": times, "seconds": simulation.seconds, "bubble": simulation.bubble}
    result |= {"utilisation": simulation.utilisation, "peak_memory": simulation.peak}
    return result | {"bytes": sum(simulation.sent), "bytes_sent_per_device": simulation.sent}
