"""``d2lmgpu predict``: what a trained network says of pictures."""

from pathlib import Path

from ..checkpoints import load_checkpoint
from ..fashion_mnist import CLASSES, load_fashion_mnist
from ..images import class_names, load_image_folder, read_images
from ..networks import NETWORKS, known_network
from ..output import save_figure, write_json
from .options import add_devices, check_outputs, find_devices


def add_to(commands):
    """Add the command to the parser's."""
    command = commands.add_parser(
        "predict",
        help="what a trained network says of pictures",
        description="What the network of a checkpoint says of pictures, or, without files, of the test set, with its "
        "accuracy.",
    )
    command.set_defaults(command=run)
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="a file that d2lmgpu train --checkpoint wrote")
    command.add_argument("files", metavar="FILE", nargs="*", help="pictures, of any size")
    command.add_argument("--data", metavar="FOLDER", help="whose test set, FOLDER/test/CLASS/ (default: Fashion-MNIST)")
    command.add_argument("--invert", action="store_true", help="for dark things on a bright ground")
    add_devices(command, default="1")
    command.add_argument("--json", metavar="FILE", help="write the result as JSON")
    command.add_argument("--confusion", metavar="FILE", help="of the test set: plot what is taken for what")
    command.add_argument("--mistakes", metavar="FILE", help="of the test set: plot the worst mistakes")


def run(options):
    """Print what the network says; returns the exit code."""
    from ..training import predict

    if options.files and (options.data or options.confusion or options.mistakes):
        raise ValueError("--data, --confusion and --mistakes are of the test set; leave out the files")
    check_outputs(options.json, options.confusion, options.mistakes)
    state, arrays = load_checkpoint(options.checkpoint)
    name = state["history"]["network"]
    if name not in NETWORKS:
        raise ValueError(f"{options.checkpoint} is of a network of your own: use d2lmgpu.predict in a program")
    names = state["history"].get("classes") or CLASSES  # which older checkpoints lack
    network = known_network(name, len(names))
    _, devices = find_devices(options)
    statistics = arrays.get("statistics of 0", [])
    if options.files:
        X = read_images(options.files, network.input_shape, options.invert)
        probabilities = predict(arrays["params"], X, devices, network, statistics)
        result = _say_predictions(options.files, probabilities, names)
    else:
        X, y = _test_set(options, names, network.input_shape)
        result = _say_mistakes(options, X, y, predict(arrays["params"], X, devices, network, statistics), names)
    if options.json:
        write_json(options.json, result)
    return 0


def _test_set(options, names, input_shape):
    """The test set of the classes of these names, and its labels."""
    if options.data:
        folder = Path(options.data, "test")
        if class_names(folder) != list(names):
            raise ValueError(
                f"{folder} has classes {', '.join(class_names(folder))}; the network was trained on {', '.join(names)}"
            )
        X, y, _ = load_image_folder(folder, input_shape, options.invert)
    elif names is CLASSES:
        _, _, X, y = load_fashion_mnist()
    else:
        raise ValueError(
            f"{options.checkpoint} was trained on classes of its own ({', '.join(names)}): give pictures, or the "
            "folder with their test set, --data FOLDER"
        )
    return X, y


def _say_predictions(files, probabilities, names):
    rows = []
    for path, row in zip(files, probabilities, strict=True):
        best = row.argsort()[::-1]
        print(f"{path}: " + ", ".join(f"{names[i]} {row[i]:.2f}" for i in best[:3]))
        each = dict(zip(names, row.tolist(), strict=True))
        rows.append({"file": path, "class": names[best[0]], "probabilities": each})
    return {"predictions": rows}


def _say_mistakes(options, X, y, probabilities, names):
    from ..plots import plot_confusion, plot_mistakes
    from ..training import confusion_matrix

    matrix = confusion_matrix(y, probabilities.argmax(axis=1), len(names))
    accuracy = float(matrix.trace() / len(y))
    print(f"test acc: {accuracy:.4f}")
    if options.confusion:
        save_figure(options.confusion, plot_confusion(matrix, names))
    if options.mistakes:
        save_figure(options.mistakes, plot_mistakes(X, y, probabilities, names))
    return {"accuracy": accuracy, "classes": names, "confusion": matrix.tolist()}
