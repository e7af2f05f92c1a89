"""``d2lmgpu plan``: prove, time and draw a plan of a training step, without training."""

from .. import words
from ..arguments import check_name
from ..collectives import ALGORITHMS
from ..collectives.topologies import TOPOLOGIES, topology
from ..devices import count_cores, cpu
from ..networks import FASHION_MNIST, NETWORKS
from ..optimizers import OPTIMIZERS
from ..output import check_writable, each_output, save_figure, write_json
from ..plans import draw, measure_costs, measure_messages, prove, simulate, write_html
from ..plans.estimate import estimate_costs
from ..training.checks import find_network
from ..training.splits import EXAMPLE, PIPELINES, SPLITS, USUAL_PIPELINE, make_plan
from .network_file import made_by
from .options import add_file, add_option, check_outputs, keep_apart, number, whole

HERE = "this_machine"
"""As a network: as many virtual devices, whose computations and messages are measured."""

CLASSES = 10
"""Of a network in a file, which is made for Fashion-MNIST."""


def add_to(commands):
    """Add the command to the parser's."""
    command = commands.add_parser(
        "plan",
        help="prove, time and draw a way to split a training step",
        description="Prove a plan of a training step, time it on a network of devices that need not be there, and draw "
        "it, without training. Times are simulated: of computations that cost what their multiplications take, or, on "
        f"{HERE}, what was measured.",
    )
    command.set_defaults(command=run)
    add_option(command, "--split", str, "data", f"{', '.join(SPLITS)}, or a product such as {EXAMPLE}")
    pipelines = f"{', '.join(PIPELINES)}, of a split over layers (default: {USUAL_PIPELINE} of several micro-batches)"
    command.add_argument("--pipeline", metavar="X", help=pipelines)
    add_option(command, "--micro-batches", whole, 1, "parts of the minibatch, as of train")
    add_option(command, "--devices", whole, 4, "how many")
    add_option(command, "--network", str, "lenet", f"{', '.join(NETWORKS)}, or a file FILE.py")
    add_option(command, "--width", number, 1, "times as many channels, of a network by name")
    add_option(command, "--batch-size", whole, 256, "examples in a minibatch, all devices together")
    add_option(command, "--optimizer", str, "sgd", ", ".join(OPTIMIZERS))
    add_option(command, "--allreduce", str, "ring", f"of a split over data: {', '.join(ALGORITHMS)}")
    add_option(command, "--on", str, "full_switch", f"the network of the devices: {', '.join((*TOPOLOGIES, HERE))}")
    add_option(command, "--speed", number, 1e12, "multiplications a second of each device")
    add_file(command, "--json", "write the result as JSON")
    add_file(command, "--plot", "draw who does what when, and memory (.png, .svg or .pdf)")
    add_file(command, "--html", "write a page on which the plan plays, in any browser")


def run(options):
    """Prove, simulate, print, write what was asked for; returns the exit code."""
    keep_apart(options, "json plot html")
    check_outputs(options.json, options.plot)
    if options.html:
        check_writable(options.html)
    text = options.network
    own = made_by(text, FASHION_MNIST, CLASSES) if text.endswith(".py") else text
    name, network = find_network(own, width=options.width)
    plan = make_plan(
        options.split, options.devices, options.pipeline, options.micro_batches, network, options.allreduce
    )
    minibatch = options.batch_size, options.optimizer
    proof = prove(plan, *minibatch)
    timed = _machine(options, plan)
    simulation = simulate(plan, **timed)
    _print(options, plan, name, proof, simulation)
    with each_output() as attempt:
        if options.json:
            attempt(write_json, options.json, _result(options, plan, name, proof, simulation))
        if options.plot:
            attempt(lambda: save_figure(options.plot, draw(plan, **timed)))
        if options.html:
            attempt(lambda: write_html(plan, options.html, **timed))
    return 0


def _machine(options, plan):
    """What `simulate` needs to know."""
    minibatch = {"batch_size": options.batch_size, "optimizer": options.optimizer}
    check_name("network", options.on, (*TOPOLOGIES, HERE))
    if options.on != HERE:
        costs = estimate_costs(plan, options.batch_size, options.speed)
        return {"network": topology(options.on, plan.k), "costs": costs, **minibatch}
    devices = [cpu(i) for i in range(plan.k)]
    measured = measure_costs(plan, devices[: count_cores()], **minibatch)
    return {"network": measure_messages(devices), "costs": measured.costs, "company": measured.company, **minibatch}


def _print(options, plan, name, proof, simulation):
    parts = f"{words.several(plan.k, 'device')}, {plan.micro_batches} micro-batch{'es' * (plan.micro_batches > 1)}"
    print(f"{plan.name}: {name} × {options.width:g}, {parts}, batch {options.batch_size}, {options.optimizer}; proved")
    print(
        f"simulated on {options.on}: {_milliseconds(simulation.seconds)} a step, bubble {simulation.bubble:.1%}, "
        f"{sum(proof.sent) / 1e6:.3g} MB sent in all"
    )
    line = "{:>6} {:>9} {:>10} {:>12}".format
    print(line("device", "computes", "sends MB", "at most MB"))
    for i, (busy, sent, peak) in enumerate(zip(simulation.utilisation, proof.sent, proof.peak, strict=True)):
        print(line(i, f"{busy:.1%}", f"{sent / 1e6:.3f}", f"{peak / 1e6:.3f}"))


def _milliseconds(seconds):
    return f"{1000 * seconds:.4g} ms"


def _result(options, plan, name, proof, simulation):
    return {
        "split": options.split,
        "pipeline": options.pipeline,
        "plan": plan.name,
        "devices": plan.k,
        "micro_batches": plan.micro_batches,
        "network": name,
        "width": options.width,
        "batch_size": options.batch_size,
        "optimizer": options.optimizer,
        "on": options.on,
        "speed": options.speed,
        "proved": True,
        "seconds": simulation.seconds,
        "bubble": simulation.bubble,
        "utilisation": simulation.utilisation,
        "bytes": sum(proof.sent),
        "bytes_sent_per_device": proof.sent,
        "peak_memory": proof.peak,
    }
