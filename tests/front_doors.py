"""The functions that check what they are given, each with a call that is right, of which a test makes wrong ones.

Behind them NumPy's own errors are good enough: a layer is what it computes.
"""

import inspect

import numpy as np
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu import exercises, experiments as sweeps, networks, plans, training
from d2lmgpu.training.checkpoints import Checkpoint, load_checkpoint, save_checkpoint

TINY = networks.sequential((1, 4, 4), networks.Flatten(), networks.Dense(3))
rng = np.random.default_rng(5)


def two():
    return [d2l.cpu(0), d2l.cpu(1)]


def images(n=6, shape=(1, 4, 4)):
    return rng.random((n, *shape)).astype(np.float32)


def labels(n=6):
    return np.arange(n) % 3


def tiny_params():
    return d2l.init_params(network=TINY)


def of_tiny():
    return {"devices": two(), "network": TINY, "statistics": (), "loss": "cross_entropy"}


def right(logits, labels):
    return (logits.argmax(axis=1) == labels).sum()


def with_defaults(function, **given):
    """The defaults of a function, and these."""
    found = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    return {name: value for name, value in found.items() if value is not inspect.Parameter.empty} | given


def short_training():
    data = images(), labels(), images(3), labels(3)
    return with_defaults(d2l.train, devices=two(), batch_size=6, num_epochs=1, data=data, network=TINY, progress=False)


def on_two(arrays):
    return [d2l.get_params(arrays, device) for device in two()]


def a_step():
    network = networks.sequential((1, 4, 4), networks.BatchNorm(), networks.Flatten(), networks.Dense(3))
    device_params = on_two(d2l.init_params(network=network))
    return with_defaults(
        d2l.train_batch,
        X=images(),
        y=labels(),
        device_params=device_params,
        devices=two(),
        lr=0.1,
        network=network,
        optimizer=d2l.init_optimizer("momentum", device_params),
        statistics=on_two(networks.init_statistics(network)),
    )


def make_files(folder):
    """A folder with pictures, a run's checkpoint and another one, and the rows of a sweep."""
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / "pictures" / part / name).mkdir(parents=True)
            Image.fromarray(np.zeros((4, 4), np.uint8)).save(folder / "pictures" / part / name / "1.png")
    X = np.zeros((4, 1, 28, 28), np.uint8)
    trial = {"batch_size": 4, "num_epochs": 1, "environment": "cpu"}
    data = X, np.arange(4), X, np.arange(4)
    d2l.sweep([trial], mode="sequential", results=folder / "rows.jsonl", data=data, progress=False)
    d2l.train(**short_training() | {"checkpoint": folder / "run"})
    save_checkpoint(folder / "checkpoint", Checkpoint({"a": 1}, {}))


SCHEDULE = d2l.collectives.ring(3, 12)
MODEL = d2l.Model(TINY, tiny_params())
QUEUE = d2l.MinibatchQueue(images(), labels(), two(), 4)

DOORS = {
    "Animator": (d2l.Animator, lambda folder: with_defaults(d2l.Animator, legend=["one", "other"])),
    "Animator.add": (d2l.Animator(legend=["one", "other"]).add, lambda folder: {"x": 1, "y": [0.5, None]}),
    "MinibatchQueue": (
        d2l.MinibatchQueue,
        lambda folder: with_defaults(d2l.MinibatchQueue, X=images(), y=labels(), devices=two(), batch_size=4),
    ),
    "MinibatchQueue.shuffle": (QUEUE.shuffle, lambda folder: {"epoch": 1, "done": 1}),
    "Model.export": (MODEL.export, lambda folder: {"path": folder / "model.npz"}),
    "Model.read": (MODEL.read, lambda folder: {"paths": [folder / "pictures" / "test" / "dog" / "1.png"]}),
    "Model.save": (MODEL.save, lambda folder: {"path": folder / "model"}),
    "Settings": (training.Settings, lambda folder: with_defaults(training.Settings)),
    "allreduce": (
        d2l.allreduce,
        lambda folder: {
            "data": [d2l.put(images(1, (2, 3))[0], device) for device in two()],
            "algorithm": "naive",
        },
    ),
    "check": (exercises.check, lambda folder: {"name": "ring", "answer": None}),
    "collectives.prove": (
        d2l.collectives.prove,
        lambda folder: {"schedule": SCHEDULE, "k": 3, "n": 12},
    ),
    "compose": (
        plans.compose,
        lambda folder: {
            "computations": [[("F", 0, 0), ("B", 0, 0)], [("F", 0, 1), ("B", 0, 1)]],
            "micro_batches": 2,
            "network": TINY,
            "stages": plans.cut(TINY, 1),
            "name": "mine",
            "algorithm": "ring",
        },
    ),
    "confusion_matrix": (
        d2l.confusion_matrix,
        lambda folder: {"y": labels(), "predicted": labels(), "classes": 3},
    ),
    "cpu": (d2l.cpu, lambda folder: {"i": 0}),
    "evaluate": (
        d2l.evaluate,
        lambda folder: (
            {"params_or_device_params": tiny_params(), "X": images(), "y": labels(), "metrics": {"right": right}}
            | of_tiny()
        ),
    ),
    "get_params": (d2l.get_params, lambda folder: {"params": tiny_params(), "device": d2l.cpu(0)}),
    "gpu": (d2l.gpu, lambda folder: {"i": 0}),
    "init_optimizer": (
        d2l.init_optimizer,
        lambda folder: {"name": "adam", "device_params": on_two(tiny_params()), "weight_decay": 0.1},
    ),
    "init_params": (d2l.init_params, lambda folder: with_defaults(d2l.init_params, network=TINY)),
    "lenet": (d2l.lenet, lambda folder: {"X": images(2, (1, 28, 28)), "params": d2l.init_params()}),
    "load_checkpoint": (load_checkpoint, lambda folder: {"path": folder / "checkpoint"}),
    "load_image_data": (
        d2l.load_image_data,
        lambda folder: {"folder": folder / "pictures", "input_shape": (1, 4, 4), "invert": False},
    ),
    "load_image_folder": (
        d2l.load_image_folder,
        lambda folder: {"folder": folder / "pictures" / "train", "input_shape": (1, 4, 4), "invert": False},
    ),
    "load_model": (
        training.load_model,
        lambda folder: {"path": folder / "run", "network": TINY, "loss": "cross_entropy"},
    ),
    "load_run": (training.load_run, lambda folder: {"path": folder / "run"}),
    "load_sweep": (sweeps.load_sweep, lambda folder: {"path": folder / "rows.jsonl"}),
    "loss_and_grads": (
        d2l.loss_and_grads,
        lambda folder: with_defaults(d2l.loss_and_grads, X=images(), y=labels(), params=tiny_params(), network=TINY),
    ),
    "measure_allreduce": (
        d2l.collectives.measure_allreduce,
        lambda folder: {"devices": two(), "algorithms": ["ring"], "sizes": [64]},
    ),
    "minibatches": (
        d2l.minibatches,
        lambda folder: {"X": images(), "y": labels(), "batch_size": 4, "seed": 0, "epoch": 0},
    ),
    "plans.prove": (
        plans.prove,
        lambda folder: {
            "plan": plans.PLANS["data"](2, 1, network=TINY),
            "batch_size": 6,
            "optimizer": "adam",
            "dtype": "float32",
        },
    ),
    "plot_history": (d2l.plot_history, lambda folder: {"history": d2l.train(**short_training())[0]}),
    "plot_sweep": (
        d2l.plot_sweep,
        lambda folder: with_defaults(d2l.plot_sweep, rows=sweeps.load_sweep(folder / "rows.jsonl")),
    ),
    "play": (d2l.play, lambda folder: {"schedule_or_plan": SCHEDULE, "network": None, "height": 400}),
    "predict": (d2l.predict, lambda folder: {"params_or_device_params": tiny_params(), "X": images()} | of_tiny()),
    "put": (d2l.put, lambda folder: {"x": images(), "device": d2l.cpu(0)}),
    "sgd": (d2l.sgd, lambda folder: {"params": tiny_params(), "grads": tiny_params(), "lr": 0.1, "batch_size": 4}),
    "split_batch": (
        d2l.split_batch,
        lambda folder: {"X": images(), "y": labels(), "devices": two(), "loads": [1, 2]},
    ),
    "to_host": (d2l.to_host, lambda folder: {"x": d2l.put(images(), d2l.cpu(0))}),
    "train": (d2l.train, lambda folder: short_training()),
    "train_batch": (d2l.train_batch, lambda folder: a_step()),
    "try_gpu": (d2l.try_gpu, lambda folder: {"i": 0}),
}
"""Name -> (the function, a function that makes its arguments anew, since some are changed in place)."""
