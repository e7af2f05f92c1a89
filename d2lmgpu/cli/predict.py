"""``d2lmgpu predict``: what a trained network says of pictures."""

from ..checkpoints import load_checkpoint
from ..fashion_mnist import CLASSES, load_fashion_mnist
from ..images import read_images
from ..networks import NETWORKS
from ..output import save_figure, write_json
from .options import add_devices, check_outputs, find_devices


def add_to(commands):
    """Add the command to the parser's."""
    command = commands.add_parser(
        "predict",
        help="what a trained network says of pictures",
        description="What the network of a checkpoint says of pictures, or, without files, of the test set of "
        "Fashion-MNIST, with its accuracy.",
    )
    command.set_defaults(command=run)
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="a file that d2lmgpu train --checkpoint wrote")
    command.add_argument("files", metavar="FILE", nargs="*", help="pictures, of any size")
    command.add_argument("--invert", action="store_true", help="for dark things on a bright ground")
    add_devices(command, default="1")
    command.add_argument("--json", metavar="FILE", help="write the result as JSON")
    command.add_argument("--confusion", metavar="FILE", help="of the test set: plot what is taken for what")
    command.add_argument("--mistakes", metavar="FILE", help="of the test set: plot the worst mistakes")


def run(options):
    """Print what the network says; returns the exit code."""
    from ..training import predict

    if options.files and (options.confusion or options.mistakes):
        raise ValueError("--confusion and --mistakes are of the test set; leave out the files")
    check_outputs(options.json, options.confusion, options.mistakes)
    state, arrays = load_checkpoint(options.checkpoint)
    name = state["history"]["network"]
    if name not in NETWORKS:
        raise ValueError(f"{options.checkpoint} is of a network of your own: use d2lmgpu.predict in a program")
    network = NETWORKS[name]
    _, devices = find_devices(options)
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


def _say_predictions(files, probabilities):
    rows = []
    for path, row in zip(files, probabilities, strict=True):
        best = row.argsort()[::-1]
        print(f"{path}: " + ", ".join(f"{CLASSES[i]} {row[i]:.2f}" for i in best[:3]))
        each = dict(zip(CLASSES, row.tolist(), strict=True))
        rows.append({"file": path, "class": CLASSES[best[0]], "probabilities": each})
    return {"predictions": rows}


def _say_mistakes(options, X, y, probabilities):
    from ..plots import plot_confusion, plot_mistakes
    from ..training import confusion_matrix

    matrix = confusion_matrix(y, probabilities.argmax(axis=1), len(CLASSES))
    accuracy = float(matrix.trace() / len(y))
    print(f"test acc: {accuracy:.4f}")
    if options.confusion:
        save_figure(options.confusion, plot_confusion(matrix, CLASSES))
    if options.mistakes:
        save_figure(options.mistakes, plot_mistakes(X, y, probabilities, CLASSES))
    return {"accuracy": accuracy, "classes": CLASSES, "confusion": matrix.tolist()}
