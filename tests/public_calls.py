"""For every public function of the package: a call that is right, of which a test makes wrong ones.

``CALLS`` has, for each function, a function that makes its arguments anew, since some are changed in place.
"""

import importlib
import inspect

import numpy as np

import d2lmgpu as d2l
from d2lmgpu import layers, networks, optimizers, plans, plots, scaling, schedules, sweeps, timing, training
from d2lmgpu.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from d2lmgpu.collectives import network as wires
from d2lmgpu.networks import Dense, Flatten, sequential

PACKAGES = (
    "d2lmgpu d2lmgpu.devices d2lmgpu.layers d2lmgpu.networks d2lmgpu.collectives d2lmgpu.parallel d2lmgpu.training "
    "d2lmgpu.scaling d2lmgpu.sweeps d2lmgpu.exercises d2lmgpu.plans"
).split()

INNER = {
    "what devices, layers and steps are made of; whoever calls them has checked what they get": """
        TransferRecord Task Device array_module on_device current_device nothing_left_behind in_one_piece one_buffer
        parts_of zeros_in_one_buffer DeviceArray Draws SyncStatistics make_sync_statistics rounded_to_half
        mean_and_variance Layer Network channels check_network check_params check_running count_correct half_weights
        in_half in_parts is_random kernels_work logits loss_and_grads_as_written EagerStep GraphStep Replica
        submit_step summed_loss loss_and_correct measure_loads preprocess_batch described restored try_loss layer_rows
        layer_table schedules_of Batch Failures all_in_c in_forked_process Exercise Judged Verdict Wrong begin
        look_back judge judge_file Framework add_to_mine my_framework write_my_page Action Execution Part Plan Stage
        """,
    "the results of others, and errors": """
        DataError DeviceError DriftError DeviceMismatchError DeviceMemoryError History Result Measurement Proof
        ScheduleError Simulation Transfer Prediction Row Scaling PlanError PlanProof PlanSimulation
        Measured ClusterScaling
        """,
    "called by several processes together, with tests of its own": "measure_cluster_scaling",
}
"""Names in ``__all__`` that are no functions for arguments of a person's own, and why."""

TINY = sequential((1, 4, 4), Flatten(), Dense(3))
rng = np.random.default_rng(5)


def two():
    return [d2l.cpu(0), d2l.cpu(1)]


def images(n=6, shape=(1, 4, 4), dtype=np.float32):
    return rng.random((n, *shape)).astype(dtype)


def labels(n=6):
    return np.arange(n) % 3


def data():
    return images(), labels(), images(3), labels(3)


def on_both(*shape):
    return [d2l.put(images(1, shape)[0], device) for device in two()]


def tiny_params():
    return d2l.init_params(network=TINY)


def conv():
    return {
        "x": images(2, (3, 6, 6)),
        "weight": images(4, (3, 3, 3)),
        "bias": np.zeros(4, np.float32),
        "stride": 2,
        "padding": 1,
    }


def conv_back():
    y, cache = d2l.conv2d(**conv())
    return {"dy": y, "cache": cache, "input_grad": True, "weight_grad": True}


def back(layer, **arguments):
    def make():
        result, cache = layer(**arguments)
        name = list(inspect.signature(getattr(layers, layer.__name__ + "_grad")).parameters)[1]
        return {"dy": result, name: cache}

    return make


def history():
    return training.train(two(), 6, 0.1, 1, data=data(), network=TINY, progress=False).history


def rows():
    return sweeps.sweep([TRIAL], mode="sequential", data=lenet_data(), progress=False)


def lenet_data(n=4):
    X = np.zeros((n, 1, 28, 28), np.uint8)
    return X, np.arange(n) % 10, X, np.arange(n) % 10


TRIAL = {"batch_size": 4, "num_epochs": 1, "environment": "cpu"}


def once(make):
    """Made when it is first needed, and then again and again: for what nobody changes."""
    made = []

    def get():
        if not made:
            made.append(make())
        return made[0]

    return get


lenet_params = once(d2l.init_params)
a_history, some_rows = once(history), once(rows)
measurements = once(lambda: list(d2l.collectives.measure_allreduce(two(), ["ring", "naive"], [64, 256])))
measured_scaling = once(lambda: scaling.measure_scaling(**scaling_arguments()))


def tiny_plan():
    return plans.PLANS["data"](2, 1, network=TINY)


TIMED = ("batch_size", "optimizer", "dtype", "network", "costs", "company")


def timed_plan(*names):
    arguments = {"batch_size": 6, "optimizer": "adam", "dtype": "float32", "network": switch, "costs": {"F": 1}}
    arguments["company"] = [1, 1.5]
    return {"plan": tiny_plan()} | {name: arguments[name] for name in names}


def scaling_arguments():
    return {
        "devices": two()[:1],
        "counts": [1],
        "mode": "strong",
        "batch_size": 4,
        "network": "lenet",
        "width": 1,
        "algorithm": "ring",
        "steps": 1,
        "repeats": 1,
        "data": lenet_data(),
        "predict": False,
        "after_round": None,
        "settings": None,
    }


def settings(function, **given):
    """The defaults of a function, and these."""
    found = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    return found | given


ring = d2l.collectives.ring
schedule = ring(3, 12)
switch = wires.full_switch(3, 1e9, 1e-6)


def of_k_and_n(name):
    return lambda folder: {"k": 3, "n": 12}


CALLS = {
    "Settings": lambda folder: settings(training.Settings),
    # the package itself
    "LivePlot": lambda folder: {},
    "Callback": lambda folder: {},
    "TensorBoard": lambda folder: {"folder": folder / "events"},
    "MinibatchQueue": lambda folder: {
        "X": images(),
        "y": labels(),
        "devices": two(),
        "batch_size": 4,
        "seed": 0,
        "loads": [1, 2],
        "preprocess": None,
        "drop_last": False,
    },
    "allreduce": lambda folder: {"data": on_both(2, 3), "algorithm": "naive", "batch": None},
    "avg_pool2d": lambda folder: {"x": images(2, (3, 6, 6)), "size": 2},
    "avg_pool2d_grad": lambda folder: back(d2l.avg_pool2d, x=images(2, (3, 6, 6)))(),
    "max_pool2d": lambda folder: {"x": images(2, (3, 6, 6)), "size": 2},
    "max_pool2d_grad": lambda folder: back(d2l.max_pool2d, x=images(2, (3, 6, 6)))(),
    "choose_devices": lambda folder: {"environment": "cpu", "devices": 2},
    "cluster": lambda folder: {"devices": two(), "patience": 9.0},
    "choose_indices": lambda folder: {"environment": "cpu", "devices": 2},
    "confusion_matrix": lambda folder: {"y": labels(), "predicted": labels(), "classes": 3},
    "conv2d": lambda folder: conv(),
    "conv2d_grad": lambda folder: conv_back(),
    "cpu": lambda folder: {"i": 0},
    "gpu": lambda folder: {"i": 0},
    "try_gpu": lambda folder: {"i": 0},
    "try_all_gpus": lambda folder: {},
    "device_table": lambda folder: {},
    "find_gpus": lambda folder: {},
    "count_cores": lambda folder: {},
    "dense": lambda folder: {"x": images(2, (4,)), "weight": images(4, (3,)), "bias": np.zeros(3, np.float32)},
    "dense_grad": lambda folder: (
        back(d2l.dense, x=images(2, (4,)), weight=images(4, (3,)), bias=np.zeros(3, np.float32))()
        | {"input_grad": True, "weight_grad": True}
    ),
    "dropout": lambda folder: {"x": images(), "p": 0.5, "draws": layers.Draws(0)},
    "dropout_grad": lambda folder: {"dy": images(), "mask": images()},
    "check_draws": lambda folder: {"name": "draws", "draws": layers.Draws(0)},
    "flatten": lambda folder: {"x": images()},
    "flatten_grad": lambda folder: {"dy": images(6, (16,)), "x_shape": (6, 1, 4, 4)},
    "relu": lambda folder: {"x": images()},
    "relu_grad": lambda folder: {"dy": images(), "y": images()},
    "half": lambda folder: {"x": images()},
    "half_grad": lambda folder: {"dy": images(), "cache": None},
    "softmax_cross_entropy": lambda folder: {"logits": images(6, (3,)), "y": labels()},
    "squared_error": lambda folder: {"outputs": images(6, (3,)), "y": images(6, (3,))},
    "squared_error_grad": lambda folder: {"cache": d2l.squared_error(images(6, (3,)), images(6, (3,)))[1]},
    "softmax_cross_entropy_grad": lambda folder: {"cache": d2l.softmax_cross_entropy(images(6, (3,)), labels())[1]},
    "batch_moments": lambda folder: {"x": images()},
    "batch_norm": lambda folder: {
        "x": images(6, (3,)),
        "weight": np.ones(3, np.float32),
        "bias": np.ones(3, np.float32),
        "moments": None,
    },
    "batch_norm_fixed": lambda folder: (
        {name: np.ones(3, np.float32) for name in ("weight", "bias", "mean", "variance")} | {"x": images(6, (3,))}
    ),
    "batch_norm_grad": lambda folder: {"dy": images(6, (3,)), "cache": normed(), "sums": None, "input_grad": True},
    "batch_norm_sums": lambda folder: {"dy": images(6, (3,)), "cache": normed()},
    "track_statistics": lambda folder: {
        "mean": np.zeros(3, np.float32),
        "variance": np.ones(3, np.float32),
        "moments": layers.batch_moments(images(6, (3,))),
        "momentum": 0.1,
    },
    "evaluate": lambda folder: {
        "params_or_device_params": tiny_params(),
        "X": images(),
        "y": labels(),
        "devices": two(),
        "network": TINY,
        "statistics": (),
        "loss": "cross_entropy",
        "metrics": {"right": lambda logits, labels: (logits.argmax(axis=1) == labels).sum()},
    },
    "predict": lambda folder: {
        "params_or_device_params": tiny_params(),
        "X": images(),
        "devices": two(),
        "network": TINY,
        "statistics": (),
        "loss": "cross_entropy",
    },
    "get_params": lambda folder: {"params": tiny_params(), "device": d2l.cpu(0)},
    "init_params": lambda folder: settings(d2l.init_params, network=TINY),
    "lenet": lambda folder: {"X": images(2, (1, 28, 28)), "params": lenet_params()},
    "load_fashion_mnist": lambda folder: {},
    "load_image_data": lambda folder: {"folder": folder / "pictures", "input_shape": (1, 4, 4), "invert": False},
    "load_image_folder": lambda folder: {
        "folder": folder / "pictures" / "train",
        "input_shape": (1, 4, 4),
        "invert": False,
    },
    "loss_and_grads": lambda folder: settings(
        d2l.loss_and_grads, X=images(), y=labels(), params=tiny_params(), network=TINY
    ),
    "minibatches": lambda folder: {"X": images(), "y": labels(), "batch_size": 4, "seed": 0, "epoch": 0},
    "to_float": lambda folder: {"images": images(dtype=np.uint8), "out": None},
    "plot_history": lambda folder: {"history": a_history(), "losses": ()},
    "put": lambda folder: {"x": images(), "device": d2l.cpu(0)},
    "to_host": lambda folder: {"x": d2l.put(images(), d2l.cpu(0))},
    "record_transfers": lambda folder: {},
    "synchronize": lambda folder: {"devices": two()},
    "sgd": lambda folder: {"params": tiny_params(), "grads": tiny_params(), "lr": 0.1, "batch_size": 4},
    "split_batch": lambda folder: {"X": images(), "y": labels(), "devices": two(), "loads": [1, 2]},
    "train": lambda folder: settings(
        d2l.train, devices=two(), batch_size=6, num_epochs=1, data=data(), network=TINY, progress=False
    ),
    "train_batch": lambda folder: {
        "X": images(4, (1, 28, 28)),
        "y": labels(4),
        "device_params": [d2l.get_params(lenet_params(), device) for device in two()],
        "devices": two(),
        "lr": 0.1,
        "algorithm": "naive",
        "flat": False,
    },
    # devices
    "check_devices": lambda folder: {"devices": two()},
    "parse_devices": lambda folder: {"text": "0,2"},
    # networks
    "AvgPool2d": lambda folder: {"size": 2},
    "MaxPool2d": lambda folder: {"size": 2},
    "BatchNorm": lambda folder: {},
    "Dropout": lambda folder: {"p": 0.5},
    "Flatten": lambda folder: {},
    "ReLU": lambda folder: {},
    "Conv2d": lambda folder: {"outputs": 3, "kernel_size": 2, "stride": 2, "padding": 1},
    "Dense": lambda folder: {"outputs": 3},
    "sequential": lambda folder: {"input_shape": (1, 4, 4), "recipes": Flatten()},
    "check_init": lambda folder: {"name": "he"},
    "init_statistics": lambda folder: {"network": TINY, "dtype": np.float32},
    "known_network": lambda folder: {"name": "cnn", "classes": 3, "input_shape": (1, 9, 9), "width": 0.5},
    "lenet_network": lambda folder: {
        "width": 0.5,
        "batch_norm": False,
        "input_shape": (1, 28, 28),
        "classes": 3,
    },
    "cnn_network": lambda folder: {"input_shape": (1, 28, 28), "classes": 3, "width": 0.5},
    "deep_network": lambda folder: {"input_shape": (1, 9, 9), "classes": 3, "width": 0.5},
    "check_width": lambda folder: {"width": 0.5},
    # collectives
    **{
        name: of_k_and_n(name)
        for name in "all_gather bidirectional_ring broadcast halving_doubling naive none recursive_doubling "
        "reduce_scatter ring sharded tree".split()
    },
    "hierarchical": lambda folder: {"k": 3, "n": 12, "groups": [[0, 1], [2]]},
    "chunk_bounds": lambda folder: {"n": 12, "k": 3},
    "check_algorithm": lambda folder: {"name": "ring", "training": False},
    "draw_steps": lambda folder: {"schedule": schedule, "k": 3, "n": 12, "columns": 4},
    "draw_bytes": lambda folder: {"schedule": schedule, "k": 3, "itemsize": 4},
    "animate": lambda folder: {"schedule": schedule, "k": 3, "n": 12, "frames_per_step": 2, "milliseconds": 80},
    "write_html": lambda folder: {
        "schedule": schedule,
        "k": 3,
        "n": 12,
        "file": folder / "schedule.html",
        "network": switch,
        "itemsize": 4,
        "title": "ring",
    },
    "execute": lambda folder: {"schedule": ring(2, 6), "arrays": on_both(2, 3)},
    "prove": lambda folder: {"schedule": schedule, "k": 3, "n": 12, "goal": "allreduce"},
    "simulate": lambda folder: {"schedule": schedule, "network": switch, "itemsize": 4},
    "measure": lambda folder: {
        "allreduce": d2l.allreduce,
        "devices": two(),
        "algorithm": "ring",
        "nbytes": 64,
        "steps": 2,
        "budget": 0,
    },
    "measure_allreduce": lambda folder: {"devices": two(), "algorithms": ["ring"], "sizes": [64]},
    "fit_virtual_devices": lambda folder: {
        "measurements": measurements(),
        "algorithms": d2l.collectives.ALGORITHMS,
        "cores": 2,
    },
    "virtual_devices": lambda folder: {
        "constants": {"startup": 1e-6, "occupancy": 1e-6, "beta": 1e-9, "gamma": 1e-9},
        "cores": 2,
    },
    "collectives.predict": lambda folder: {
        "measurements": measurements(),
        "algorithms": d2l.collectives.ALGORITHMS,
        "network": lambda k: wires.full_switch(k, 1e9),
    },
    # plans
    "compose": lambda folder: {
        "computations": [[("F", 0, 0), ("B", 0, 0)], [("F", 0, 1), ("B", 0, 1)]],
        "micro_batches": 2,
        "network": TINY,
        "stages": plans.cut(TINY, 1),
        "name": "mine",
        "algorithm": "ring",
    },
    "copies_of": lambda folder: {
        "name": "gpipe",
        "copies": 2,
        "k": 1,
        "micro_batches": 2,
        "network": TINY,
        "algorithm": "ring",
    },
    "cut": lambda folder: {"network": TINY, "count": 1, "costs": [1, 2]},
    "plans.prove": lambda folder: timed_plan("batch_size", "optimizer", "dtype"),
    "plans.simulate": lambda folder: timed_plan(*TIMED),
    "draw": lambda folder: timed_plan(*TIMED) | {"messages": True},
    "plans.animate": lambda folder: timed_plan(*TIMED) | {"frames": 2, "milliseconds": 80},
    "plans.write_html": lambda folder: timed_plan(*TIMED) | {"file": folder / "plan.html"},
    "measure_messages": lambda folder: {"devices": two()},
    "measure_costs": lambda folder: timed_plan("batch_size", "optimizer", "dtype") | {"devices": two(), "rounds": 1},
    "plans.execute": lambda folder: {
        "plan": tiny_plan(),
        "X": images(),
        "y": labels(),
        "params": tiny_params(),
        "devices": two(),
        "lr": 0.1,
        "optimizer": "sgd",
    },
    "parse_size": lambda folder: {"text": "4K"},
    "place": lambda folder: {"schedule": schedule, "members": [3, 4, 5], "start": 0},
    "together": lambda folder: {"schedules": schedule},
    "plot_measurements": lambda folder: {"rows": measurements()},
    "plot_predictions": lambda folder: {"measurements": measurements(), "predicted": np.ones(len(measurements()))},
    "plot_times": lambda folder: {
        "algorithms": {"ring": ring},
        "network": switch,
        "sizes": [64, 256],
        "devices": None,
    },
    "full_switch": lambda folder: settings(wires.full_switch, k=3, bandwidth=1e9),
    "pcie_bus": lambda folder: settings(wires.pcie_bus, k=3, bandwidth=1e9),
    "nvlink_ring": lambda folder: settings(wires.nvlink_ring, k=3, bandwidth=1e9),
    "nvlink_mesh": lambda folder: settings(wires.nvlink_mesh),
    "machines": lambda folder: settings(wires.machines, k=4, size=2),
    "shared_cores": lambda folder: settings(wires.shared_cores, k=3, cores=2, bandwidth=1e9),
    # parallel
    "check_batch_statistics": lambda folder: {"name": "local"},
    "check_loads": lambda folder: {"loads": [1, 2], "k": 2},
    "check_precision": lambda folder: {"precision": "float32", "devices": two()},
    # training
    "sha256": lambda folder: {"arrays": tiny_params()},
    "why_diverged": lambda folder: {"losses": [1.0], "network": TINY, "loss": "cross_entropy"},
    "find_loss": lambda folder: {"loss": (d2l.squared_error, d2l.squared_error_grad)},
    "learning_rates": lambda folder: settings(schedules.learning_rates, lr=0.1, epoch=0, steps=3, num_epochs=2),
    "momentum": lambda folder: {
        "params": tiny_params(),
        "grads": tiny_params(),
        "velocities": tiny_params(),
        "lr": 0.1,
        "batch_size": 4,
        "decay": 0.9,
    },
    "adam": lambda folder: {
        "params": tiny_params(),
        "grads": tiny_params(),
        "means": tiny_params(),
        "squares": [np.abs(param) for param in tiny_params()],
        "step": 1,
        "lr": 0.1,
        "batch_size": 4,
    },
    "check_optimizer": lambda folder: {"name": "sgd"},
    "load_run": lambda folder: {"path": folder / "run"},
    "load_model": lambda folder: {"path": folder / "run", "network": TINY, "loss": "cross_entropy"},
    "Model": lambda folder: {
        "network": TINY,
        "params": tiny_params(),
        "statistics": [],
        "classes": ["a", "b", "c"],
        "invert": False,
        "loss": "squared_error",
    },
    "load_checkpoint": lambda folder: {"path": folder / "checkpoint"},
    "save_checkpoint": lambda folder: {
        "path": folder / "another checkpoint",
        "checkpoint": Checkpoint({"a": 1}, {"b": [np.zeros(2)]}),
    },
    # scaling
    "Compute": lambda folder: {"sizes": [1, 2], "seconds": [0.1, 0.2], "busy": 1},
    "check_counts": lambda folder: {"counts": [1, 2], "devices": two()},
    "count_places": lambda folder: {"devices": two()},
    "fit_messages": lambda folder: {"devices": two(), "counts": [1, 2], "algorithm": "ring", "places": 2},
    "measure_compute": lambda folder: (
        {
            name: value
            for name, value in scaling_arguments().items()
            if name in "devices network width steps repeats data"
        }
        | {"sizes": [2]}
    ),
    "measure_scaling": lambda folder: scaling_arguments(),
    "plot_scaling": lambda folder: {"scaling": measured_scaling()},
    "plot_phases": lambda folder: {"experiments": {"one": measured_scaling()}},
    "plot_extrapolation": lambda folder: {"lines": {"one": predicted()}, "published": ()},
    "predict_scaling": lambda folder: {
        "compute": scaling.Compute([1], [0.1]),
        "counts": [1, 2],
        "batch_size": 8,
        "elements": 100,
        "network": lambda k: wires.full_switch(k, 1e9),
        "mode": "strong",
        "algorithm": "ring",
        "places": None,
    },
    # sweeps
    "check_labels": lambda folder: {"y": labels(), "n": 6, "classes": 3},
    "check_targets": lambda folder: {"y": images(6, (3,)), "n": 6, "outputs": 3, "any_shape": False},
    "check_axes": lambda folder: {"x": "lr", "y": "best accuracy", "by": "devices"},
    "document": lambda folder: {"rows": some_rows(), "data": None, "running": ()},
    "grid": lambda folder: {"values": [1, 2]},
    "load_sweep": lambda folder: {"path": folder / "rows.json", "running": False},
    "plot_curves": lambda folder: {"rows": some_rows()},
    "plot_sweep": lambda folder: {"rows": some_rows(), "x": "lr", "y": "best accuracy", "by": "devices"},
    "run_trial": lambda folder: {
        "settings": sweeps.DEFAULTS | TRIAL,
        "data": lenet_data(),
        "stop": None,
        "invert": False,
        "checkpoint": None,
        "report": None,
    },
    "sweep": lambda folder: {
        "trials": [TRIAL],
        "executor": None,
        "mode": "sequential",
        "workers": None,
        "results": None,
        "keep_models": None,
        "data": lenet_data(),
        "invert": False,
        "progress": False,
        "watch": None,
    },
    # exercises
    "check": lambda folder: {"name": "ring", "answer": None, "seconds": 1},
    "find": lambda folder: {"name": "ring"},
    "compare": lambda folder: {"what": "bytes", "predicted": 1.0, "found": 2.0, "unit": "", "how": "measured"},
    "save_data": lambda folder: {"name": "figure", "data": [1]},
    "setting": lambda folder: {"full": 1, "quick": 2},
    # figures, time
    "plot_timeline": lambda folder: {"spans": [timing.Span("host", "data", 0.0, 1.0)], "steps": 2},
    "plot_confusion": lambda folder: {"matrix": np.ones((3, 3), int), "names": ["a", "b", "c"]},
    "plot_mistakes": lambda folder: {
        "X": images(),
        "y": labels(),
        "probabilities": images(6, (3,)),
        "names": ["a", "b", "c"],
        "count": 2,
    },
    "chrome_trace": lambda folder: {"spans": [timing.Span("host", "data", 0.0, 1.0)]},
    "Timeline": lambda folder: {"devices": two(), "spans": False},
}


def normed():
    return layers.batch_norm(images(6, (3,)), np.ones(3, np.float32), np.ones(3, np.float32))[1]


def predicted():
    return scaling.predict_scaling(scaling.Compute([1], [0.1]), [1, 2], 8, 100, lambda k: wires.full_switch(k, 1e9))


OTHERS = {  # without an ``__all__`` of their own
    wires: "full_switch machines nvlink_mesh nvlink_ring pcie_bus shared_cores",
    networks.known: "check_width cnn_network deep_network lenet_network",
    optimizers: "adam check_optimizer momentum sgd",
    schedules: "learning_rates",
    plots: "plot_confusion plot_history plot_mistakes plot_timeline",
    timing: "Timeline chrome_trace",
}


def public():
    """Every public function by the name that it has in `CALLS`."""
    inner = {name for names in INNER.values() for name in names.split()}
    found = {"load_checkpoint": load_checkpoint, "save_checkpoint": save_checkpoint}
    for module, names in OTHERS.items():
        found |= {name: getattr(module, name) for name in names.split()}
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            if callable(value) and name not in inner:
                known = found.setdefault(name, value)
                if known is not value:
                    found[f"{package.__name__.rpartition('.')[2]}.{name}"] = value
    return found
