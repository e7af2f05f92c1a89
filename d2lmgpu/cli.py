"""The command ``d2lmgpu``: each subcommand parses, calls one public function, prints.

Exit code 0 only on success, 2 with one line on standard error for bad input, 1
if training diverged and 130 if it was interrupted (results are still reported).
"""

import argparse
import sys

from .checkpoints import load_checkpoint
from .collectives import ALGORITHMS, LIBRARIES, measure_allreduce, parse_size, plot_measurements
from .devices import ENVIRONMENTS, DeviceError, choose_devices, device_table, find_gpus, parse_devices
from .fashion_mnist import CLASSES, DataError, load_fashion_mnist
from .images import read_images
from .monitor import TensorBoard
from .networks import INITS, NETWORKS
from .optimizers import OPTIMIZERS
from .output import check_plot, check_writable, is_plot, save_figure, write_json
from .parallel import BATCH_STATISTICS
from .schedules import SCHEDULES
from .timing import Timeline, chrome_trace


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(arguments=None):
    """Run a command line (``sys.argv`` unless given); returns the exit code."""
    options = _parse(arguments)
    try:
        return options.command(options)
    except (ValueError, DeviceError, DataError, OSError) as error:
        message = " ".join(str(error).split())
        print(f"d2lmgpu {options.name}: error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before or after training, or a second time during it
        print(f"d2lmgpu {options.name}: interrupted, nothing was written", file=sys.stderr)
        return 130


def _parse(arguments):
    """As argparse does, which loses files that come after an option that comes after the checkpoint."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if any(word.startswith("-") for word in rest) or not hasattr(options, "files"):
        options = parser.parse_args(arguments)  # says what is wrong
    else:
        options.files += rest
    return options


def _parser():
    parser = _Parser(prog="d2lmgpu", description="Train LeNet on several devices, from scratch.")
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")

    def add(flag, kind, default, help):
        command.add_argument(flag, type=kind, default=default, metavar="X", help=f"{help} (default: {default})")

    command = commands.add_parser("devices", help="list the devices of this machine")
    command.set_defaults(command=_devices)
    command.add_argument("--json", metavar="FILE", help="write the table as JSON")

    command = commands.add_parser(
        "train",
        help="train a network on Fashion-MNIST",
        description="Train a network on Fashion-MNIST, data-parallel on one or more devices.",
    )
    command.set_defaults(command=_train)

    add("--environment", str, "auto", ", ".join(ENVIRONMENTS))
    command.add_argument(
        "--devices", metavar="K", help="how many (2), or which (0,2); default: 1, or all for multi-gpu"
    )
    command.add_argument("--loads", metavar="L", help="shares of a minibatch: 1,1,0.5 (0: idle), or auto")
    add("--network", str, "lenet", ", ".join(NETWORKS))
    add("--optimizer", str, "sgd", ", ".join(OPTIMIZERS))
    add("--batch-size", int, 256, "examples in a minibatch, all devices together")
    add("--lr", float, 0.2, "learning rate")
    command.add_argument(
        "--scale-batch", action="store_true", help="multiply batch size and lr by the number of devices"
    )
    add("--warmup", float, 0, "epochs over which the learning rate rises to its value")
    add("--schedule", str, "constant", f"of the learning rate afterwards: {', '.join(SCHEDULES)}")
    add(
        "--batch-statistics", str, "local", f"over which images batch norm takes its own: {', '.join(BATCH_STATISTICS)}"
    )
    add("--epochs", int, 10, "passes over the training set")
    add("--allreduce", str, "ring", ", ".join(name for name in [*ALGORITHMS, *LIBRARIES] if name != "none"))
    add("--seed", int, 0, "of initial weights and shuffles")
    add("--init", str, "normal", f"initial weights: {', '.join(INITS)}")
    command.add_argument("--limit", type=int, metavar="N", help="train on the first N examples only, for a quick look")
    command.add_argument("--json", metavar="FILE", help="write the result as JSON")
    command.add_argument("--plot", metavar="FILE", help="plot accuracy and loss by epoch (.png, .svg or .pdf)")
    command.add_argument(
        "--trace",
        metavar="FILE",
        help="write what each device did when, as a Chrome trace (JSON, opens in ui.perfetto.dev) "
        "or as a plot of the first steps (.png, .svg or .pdf)",
    )
    add("--precision", str, "float32", "float32, or on GPUs tf32 or mixed (float16 products, float32 parameters)")
    command.add_argument("--checkpoint", metavar="FILE", help="write a checkpoint after every epoch and when stopped")
    command.add_argument("--checkpoint-steps", type=int, metavar="N", help="and after every N steps")
    command.add_argument("--resume", metavar="FILE", help="go on from a checkpoint, with the same settings")
    command.add_argument("--tensorboard", metavar="DIR", help="write event files for TensorBoard")
    command.add_argument("--overlap", action="store_true", help="exchange gradients while others are being computed")
    command.add_argument("--no-prefetch", action="store_true", help="prepare each minibatch only when it is needed")

    command = commands.add_parser(
        "predict",
        help="what a trained network says of pictures",
        description="What the network of a checkpoint says of pictures, or, without files, of the test set of "
        "Fashion-MNIST, with its accuracy.",
    )
    command.set_defaults(command=_predict)
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="a file that d2lmgpu train --checkpoint wrote")
    command.add_argument("files", metavar="FILE", nargs="*", help="pictures, of any size")
    command.add_argument("--invert", action="store_true", help="for dark things on a bright ground")
    add("--environment", str, "auto", ", ".join(ENVIRONMENTS))
    command.add_argument("--devices", metavar="K", help="how many (2), or which (0,2); default: 1")
    command.add_argument("--json", metavar="FILE", help="write the result as JSON")
    command.add_argument("--confusion", metavar="FILE", help="of the test set: plot what is taken for what")
    command.add_argument("--mistakes", metavar="FILE", help="of the test set: plot the worst mistakes")

    command = commands.add_parser(
        "allreduce",
        help="time allreduce algorithms",
        description="Time allreduce algorithms on the devices, in the convention of NCCL-tests: algbw = bytes / time, "
        "busbw = algbw * 2(k-1)/k, in GB/s. Every sum is checked.",
    )
    command.set_defaults(command=_allreduce)
    summing = ",".join(name for name in ALGORITHMS if name != "none")
    add("--environment", str, "auto", ", ".join(ENVIRONMENTS))
    add("--devices", str, "2", "how many (4), or which (0,2)")
    add("--algorithms", str, summing, f"names with commas between; also {', '.join(['none', *LIBRARIES])}")
    add("--sizes", str, "4K,512K,64M", "bytes of the array on each device, with commas between")
    command.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    command.add_argument("--plot", metavar="FILE", help="plot time and bandwidth by size (.png, .svg or .pdf)")
    return parser


def _allreduce(options):
    _check_outputs(options)
    algorithms = [name.strip() for name in options.algorithms.split(",")]
    sizes = [parse_size(size) for size in options.sizes.split(",")]
    _, devices = choose_devices(options.environment, parse_devices(options.devices))
    _say_shared(devices)
    line = "{:>12} {:<19} {:>5} {:>11} {:>11} {:>11}".format
    rows = []
    for row in measure_allreduce(devices, algorithms, sizes):
        if not rows:
            print(f"float32, sum, in place, on {devices}; busbw = algbw * 2(k-1)/k")
            print(line("bytes", "algorithm", "steps", "seconds", "algbw GB/s", "busbw GB/s"))
        steps = "-" if row.steps is None else row.steps
        speeds = (f"{row.seconds:.6f}", f"{row.algbw:.3f}", f"{row.busbw:.3f}")
        print(line(f"{row.bytes:,}", row.algorithm, steps, *speeds), flush=True)
        rows.append(row)
    if options.json:
        write_json(options.json, {"rows": [row.as_dict() for row in rows]})
    if options.plot:
        save_figure(options.plot, plot_measurements(rows))
    return 0


def _devices(options):
    if options.json:
        check_writable(options.json)
    rows = device_table()
    print(f"{'device':<8} {'memory free':>12} {'total':>9}  {'compute':<7}  description")
    for row in rows:
        free, total = (f"{size / 2**30:.1f} GiB" for size in (row.memory_free, row.memory_total))
        print(f"{row.name:<8} {free:>12} {total:>9}  {row.compute_capability or '-':<7}  {row.description}")
    print("cpu devices are virtual: one a core is listed, any number works, and all share the memory.")
    cards, reason = find_gpus()
    if not cards:
        print(f"no GPU: {reason}.")
    if options.json:
        write_json(options.json, {"devices": [row.as_dict() for row in rows]})
    return 0


def _train(options):
    from .training import train

    _check_outputs(options)
    devices = None if options.devices is None else parse_devices(options.devices)
    environment, devices = choose_devices(options.environment, devices)
    _say_shared(devices)
    timeline = Timeline(devices, spans=options.trace is not None)
    history, _ = train(
        devices,
        batch_size=options.batch_size,
        lr=options.lr,
        num_epochs=options.epochs,
        algorithm=options.allreduce,
        seed=options.seed,
        init=options.init,
        data=_limited(options.limit),
        network=options.network,
        optimizer=options.optimizer,
        loads="auto" if options.loads == "auto" else _numbers(options.loads, "loads"),
        batch_statistics=options.batch_statistics,
        scale_batch=options.scale_batch,
        warmup=options.warmup,
        schedule=options.schedule,
        overlap=options.overlap,
        prefetch=not options.no_prefetch,
        precision=options.precision,
        checkpoint=options.checkpoint,
        checkpoint_steps=options.checkpoint_steps,
        resume=options.resume,
        callbacks=[TensorBoard(options.tensorboard)] if options.tensorboard else [],
        timeline=timeline,
        environment=environment,
    )
    if len(devices) > 1:
        print(history.balance())
    print(history.summary(), flush=True)  # before anything that could fail
    if options.json:
        write_json(options.json, history.as_dict())
    if options.plot:
        from .plots import plot_history

        save_figure(options.plot, plot_history(history))
    if options.trace:
        _save_trace(options.trace, timeline.all_spans())
    if history.diverged:
        return 1
    return 130 if history.interrupted else 0


def _predict(options):
    from .training import predict

    _check_predict(options)
    state, arrays = load_checkpoint(options.checkpoint)
    name = state["history"]["network"]
    if name not in NETWORKS:
        raise ValueError(f"{options.checkpoint} is of a network of your own: use d2lmgpu.predict in a program")
    network = NETWORKS[name]
    devices = options.devices and parse_devices(options.devices)
    _, devices = choose_devices(options.environment, devices)
    statistics = arrays.get("statistics of 0", [])
    if options.files:
        X = read_images(options.files, network.input_shape, options.invert)
        result = _say_predictions(options.files, predict(arrays["params"], X, devices, network, statistics))
    else:
        _, _, X, y = load_fashion_mnist()
        result = _say_mistakes(options, X, y, predict(arrays["params"], X, devices, network, statistics))
    if options.json:
        write_json(options.json, result)
    return 0


def _check_predict(options):
    plots = [path for path in (options.confusion, options.mistakes) if path]
    if plots and options.files:
        raise ValueError("--confusion and --mistakes are of the test set; leave out the files")
    if options.json:
        check_writable(options.json)
    for path in plots:
        check_plot(path)


def _say_predictions(files, probabilities):
    rows = []
    for path, row in zip(files, probabilities, strict=True):
        best = row.argsort()[::-1]
        print(f"{path}: " + ", ".join(f"{CLASSES[i]} {row[i]:.2f}" for i in best[:3]))
        each = dict(zip(CLASSES, row.tolist(), strict=True))
        rows.append({"file": path, "class": CLASSES[best[0]], "probabilities": each})
    return {"predictions": rows}


def _say_mistakes(options, X, y, probabilities):
    from .plots import plot_confusion, plot_mistakes
    from .training import confusion_matrix

    matrix = confusion_matrix(y, probabilities.argmax(axis=1), len(CLASSES))
    accuracy = float(matrix.trace() / len(y))
    print(f"test acc: {accuracy:.4f}")
    if options.confusion:
        save_figure(options.confusion, plot_confusion(matrix, CLASSES))
    if options.mistakes:
        save_figure(options.mistakes, plot_mistakes(X, y, probabilities, CLASSES))
    return {"accuracy": accuracy, "classes": CLASSES, "confusion": matrix.tolist()}


def _save_trace(path, spans):
    if is_plot(path):
        from .plots import plot_timeline

        save_figure(path, plot_timeline(spans))
    else:
        write_json(path, chrome_trace(spans), indent=None)


def _check_outputs(options):
    if options.json:
        check_writable(options.json)
    if options.plot:
        check_plot(options.plot)
    trace = getattr(options, "trace", None)
    if trace:
        check_plot(trace) if is_plot(trace) else check_writable(trace)


def _numbers(text, name):
    """ "1,1,0.5" as a list of floats; None stays None."""
    try:
        return None if text is None else [float(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} {text!r}: write numbers with commas between, such as 1,1,0.5") from None


def _limited(limit):
    """The data set, of which the first ``limit`` training examples."""
    X_train, y_train, X_test, y_test = load_fashion_mnist()
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; it should be at least 1")
    return X_train[:limit], y_train[:limit], X_test, y_test


def _say_shared(devices):
    """Say so where several GPU devices are one card: their times are no measure of several GPUs."""
    cards = [device.card for device in devices if device.kind == "gpu"]
    if len(set(cards)) < len(cards):
        print(f"note: {len(cards)} devices share {len(set(cards))} GPU(s)", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
