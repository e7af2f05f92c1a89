"""``d2lmgpu predict``: classify pictures with a trained network.

Classifies pictures with the network of a checkpoint or, without files, the test set, and prints the accuracy. With
--environment parallel, all processes that mpiexec or srun starts take part.
"""

from argparse import BooleanOptionalAction
from pathlib import Path

import numpy as np

from ..base.text import legible, several
from ..data.fashion_mnist import CLASSES, find_idx, load_fashion_mnist
from ..data.images import load_image_data, load_image_folder
from ..devices import ENVIRONMENTS
from ..devices.probes import warn
from ..layers.loss import answers
from ..pictures.plots import plot_confusion
from ..training import confusion_matrix, load_model
from .inputs import add_devices, find_devices
from .options import add_input, add_plot, write_results
from .ranks import add_ranks


def add_to(command):
    """Add the options to the command's parser."""
    add_input(command, "checkpoint", "file written by d2lmgpu train --checkpoint", "CHECKPOINT")
    add_input(command, "files", "pictures of any size", nargs="*", default=[])
    invert = "the pictures show dark things on a bright background (default: as in training)"
    command.add_argument("--invert", action=BooleanOptionalAction, help=invert)
    add_input(command, "--data", "test set in FOLDER/test/CLASS/ (default: Fashion-MNIST)", "FOLDER")
    add_devices(command, default="1", environments=(*ENVIRONMENTS, "parallel"))
    add_ranks(command)
    add_plot(command, "--confusion", "plot which classes of the test set are confused")


def run(options, group=None):
    """Print the network's predictions. ``group``: a `Cluster` to use instead of the options' devices."""
    if options.files and (options.data or options.confusion):
        raise ValueError("--data and --confusion are for the test set; leave out the files")
    model = load_model(options.checkpoint)
    if options.invert is not None:
        model.invert = options.invert
    names = model.classes or (CLASSES if model.network.classes == len(CLASSES) else range(model.network.classes))
    names = list(map(str, names))
    devices = group or find_devices(options)[1]
    if options.files:
        probabilities = model.predict(model.read(options.files), devices)
        result = _say_predictions(options.files, probabilities, names)
    else:
        X, y = _test_set(options, model, names)
        probabilities = model.predict(X, devices)
        result = _say_accuracy(y, probabilities, names)
    lost = np.sum(answers(probabilities) < 0)
    if lost:
        warn(f"{lost:,} of {several(len(probabilities), 'image')} have no class: the network's outputs are not finite")
    write_results(options, result, confusion=lambda: plot_confusion(np.array(result["confusion"]), names))


def _test_set(options, model, names):
    """The test set and its labels, for classes with these names."""
    if options.data:
        folder, reading = Path(options.data, "test"), (model.network.input_shape, model.invert)
        idx = find_idx(options.data)
        X, y, found = load_image_data(options.data, *reading)[2:] if idx else load_image_folder(folder, *reading)
        if found != names:
            raise ValueError(f"{folder} has classes {', '.join(found)}; the network was trained on {', '.join(names)}")
    elif model.classes is None and names == list(CLASSES):
        _, _, X, y = load_fashion_mnist()
    else:
        others = f"{options.checkpoint} was trained on other classes than Fashion-MNIST's ({', '.join(names)})"
        raise ValueError(f"{others}: give pictures, or the folder with their test set, --data FOLDER")
    return X, y


def _say_predictions(files, probabilities, names):
    rows = []
    for path, row, answer in zip(files, probabilities, answers(probabilities), strict=True):
        best = (-row).argsort(kind="stable")[:3] if answer >= 0 else ()
        print(legible(f"{path}: " + (", ".join(f"{names[i]} {row[i]:.2f}" for i in best) or "no class")))
        each = dict(zip(names, row.tolist(), strict=True))
        rows.append({"file": path, "class": names[answer] if answer >= 0 else None, "probabilities": each})
    return {"predictions": rows}


def _say_accuracy(y, probabilities, names):
    said = answers(probabilities)
    matrix = confusion_matrix(y[said >= 0], said[said >= 0], len(names))
    accuracy = float(matrix.trace() / len(y))
    print(f"test acc: {accuracy:.4f}")
    return {"accuracy": accuracy, "classes": names, "confusion": matrix.tolist()}
