"""``d2lmgpu train``: train a network on one or more devices."""

from ..collectives import TRAINING_NAMES
from ..monitor import TensorBoard
from ..networks import INITS, NETWORKS
from ..optimizers import OPTIMIZERS
from ..output import check_plot, check_writable, each_output, is_plot, same_file, save_figure, write_json
from ..parallel import BATCH_STATISTICS
from ..schedules import SCHEDULES
from ..timing import Timeline, chrome_trace
from ..training.checks import find_network
from .options import (
    add_devices,
    add_file,
    add_option,
    check_outputs,
    find_data,
    find_devices,
    keep_apart,
    listed,
    number,
    picture_folders,
    whole,
)


def add_to(commands):
    """Add the command to the parser's."""
    command = commands.add_parser(
        "train",
        help="train a network on Fashion-MNIST, or on pictures in folders",
        description="Train a network on Fashion-MNIST, or on pictures in folders, data-parallel on one or more "
        "devices.",
    )
    command.set_defaults(command=run)
    add_devices(command, default="1, or all for multi-gpu")
    command.add_argument("--loads", type=_loads, metavar="L", help="shares of a minibatch: 1,1,0.5 (0: idle), or auto")
    pictures = "pictures, in FOLDER/train/CLASS/ and FOLDER/test/CLASS/, of any size (default: Fashion-MNIST)"
    add_file(command, "--data", pictures, "FOLDER")
    command.add_argument("--invert", action="store_true", help="these show dark things on a bright ground")
    command.add_argument("--limit", type=whole, metavar="N", help="train on N examples only, for a quick look")
    add_settings(command)
    add_file(command, "--json", "write the result as JSON")
    add_file(command, "--plot", "plot accuracy and loss by epoch (.png, .svg or .pdf)")
    add_file(
        command,
        "--trace",
        "write what each device did when, as a Chrome trace (JSON, opens in ui.perfetto.dev) or as a plot of the first "
        "steps (.png, .svg or .pdf)",
    )
    add_file(command, "--checkpoint", "write a checkpoint after every epoch and when stopped")
    command.add_argument("--checkpoint-steps", type=whole, metavar="N", help="and after every N steps")
    add_file(command, "--resume", "go on from a checkpoint, with the same settings")
    add_file(command, "--tensorboard", "write event files for TensorBoard", "DIR")
    command.add_argument("--overlap", action="store_true", help="exchange gradients while others are being computed")
    command.add_argument("--no-prefetch", action="store_true", help="prepare each minibatch only when it is needed")


def add_settings(command, as_type=lambda kind: kind):
    """Add the options that decide what is learned; ``as_type`` of a type is what reads an option's text."""

    def add(flag, kind, default, help):
        add_option(command, flag, as_type(kind), default, help)

    add("--network", str, "lenet", ", ".join(NETWORKS))
    add("--optimizer", str, "sgd", ", ".join(OPTIMIZERS))
    add("--batch-size", whole, 256, "examples in a minibatch, all devices together")
    command.add_argument("--drop-last", action="store_true", help="leave out the ragged rest of each epoch")
    add("--lr", number, 0.2, "learning rate")
    command.add_argument(
        "--scale-batch", action="store_true", help="multiply batch size and lr by the number of devices"
    )
    add("--warmup", number, 0, "epochs over which the learning rate rises to its value")
    add("--schedule", str, "constant", f"of the learning rate afterwards: {', '.join(SCHEDULES)}")
    add(
        "--batch-statistics", str, "local", f"over which images batch norm takes its own: {', '.join(BATCH_STATISTICS)}"
    )
    add("--epochs", whole, 10, "passes over the training set")
    add("--allreduce", str, "ring", ", ".join(TRAINING_NAMES))
    add("--seed", whole, 0, "of initial weights and shuffles")
    add("--init", str, "normal", f"initial weights: {', '.join(INITS)}")
    add("--precision", str, "float32", "float32, mixed (float16 products, float32 parameters), or on GPUs tf32")


def _loads(text):
    return text if text == "auto" else listed(number)(text)


def settings(options):
    """The options of `add_settings` as `train` takes them."""
    return {
        "network": options.network,
        "optimizer": options.optimizer,
        "batch_size": options.batch_size,
        "drop_last": options.drop_last,
        "lr": options.lr,
        "scale_batch": options.scale_batch,
        "warmup": options.warmup,
        "schedule": options.schedule,
        "batch_statistics": options.batch_statistics,
        "num_epochs": options.epochs,
        "algorithm": options.allreduce,
        "seed": options.seed,
        "init": options.init,
        "precision": options.precision,
    }


def run(options):
    """Train, print how it goes, write what was asked for; returns the exit code."""
    from ..training import train

    goes_on = options.checkpoint and options.resume and same_file(options.checkpoint, options.resume)
    inputs = {"--resume": None if goes_on else options.resume, "--data": picture_folders(options.data)}
    keep_apart(options, "json plot trace checkpoint tensorboard", inputs)
    check_outputs(options.json, options.plot)
    if options.trace:
        check_plot(options.trace) if is_plot(options.trace) else check_writable(options.trace)
    environment, devices = find_devices(options)
    _, network = find_network(options.network)
    timeline = Timeline(devices, spans=options.trace is not None)
    history, _ = train(
        devices,
        **settings(options),
        data=find_data(options.data, network.input_shape, options.invert, options.limit),
        loads=options.loads,
        overlap=options.overlap,
        prefetch=not options.no_prefetch,
        checkpoint=options.checkpoint,
        checkpoint_steps=options.checkpoint_steps,
        resume=options.resume,
        callbacks=[TensorBoard(options.tensorboard)] if options.tensorboard else [],
        timeline=timeline,
        environment=environment,
        invert=options.invert,
    )
    if len(devices) > 1 and any(history.utilisation.values()):  # not if a resumed run had nothing left to do
        print(history.balance())
    print(history.summary(), flush=True)  # before anything that could fail
    with each_output() as attempt:
        if options.json:
            attempt(write_json, options.json, history.as_dict())
        if options.plot:
            attempt(_save_plot, options.plot, history)
        if options.trace:
            attempt(_save_trace, options.trace, timeline.all_spans())
    if history.diverged:
        return 1
    return 130 if history.interrupted else 0


def _save_plot(path, history):
    from ..plots import plot_history

    save_figure(path, plot_history(history))


def _save_trace(path, spans):
    if is_plot(path):
        from ..plots import plot_timeline

        save_figure(path, plot_timeline(spans))
    else:
        write_json(path, chrome_trace(spans), indent=None)
