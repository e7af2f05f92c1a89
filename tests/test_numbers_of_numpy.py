"""Numbers, flags and lists as NumPy and pandas give them: every public function takes them as Python's own.

In a call that is right, each number, flag and list is replaced in turn by the same value in another form. The result
must be the same as before, down to its types and its text: an ``np.int64(3)`` in it would end in a file, or as
"np.int64(3)" on a page, and an ``np.uint8`` would silently count from 0 again after 255.
"""

import functools
import inspect
import json
import re
import sys
from importlib import import_module
from pathlib import Path

import front_doors
import numpy as np
import pytest
from conftest import long
from front_doors import DOORS, TINY, images, labels, make_files, short_training, tiny_params, two
from matplotlib.figure import Figure
from matplotlib.text import Text

import d2lmgpu as d2l
from d2lmgpu import (
    collectives,
    devices,
    exercises,
    layers,
    networks,
    parallel,
    plans,
    scaling,
    sweeps,
    training,
)
from d2lmgpu.arguments import check_whole
from d2lmgpu.collectives import network as wiring
from d2lmgpu.exercises.grading import grade
from d2lmgpu.networks import Dense, Flatten, sequential

try:
    import pandas
except ImportError:  # no dependency of the package
    pandas = None

NO_NUMBERS = """
X algorithm algorithms alt answer array arrays batch bias buffer by cache cluster devices draws dtype dy experiments
facts figure function functions images kind lines logits loss mask mean measurements metrics moments name network out
outputs own params path plan precision program recipes rows scaling schedule schedules statistics text
to_host variance weight wiring x xp y
""".split()
"""Parameters that take neither numbers nor flags. A function with any other needs a call below."""

RESULTS = """
History collectives.Invented collectives.Measurement collectives.Proof collectives.Simulation plans.Measured
plans.PlanProof plans.PlanSimulation training.Result exercises.Framework exercises.Verdict cluster.Across
cluster.Cluster cluster.Place
""".split()
"""Classes of what the package itself returns."""

INNER = """
collectives.check_algorithm collectives.check_measured cluster.add_gather cluster.agree devices.FailFastBatch
cluster.measure_across devices.Task networks.sums_and_grads exercises.write_json
""".split()
"""Functions that the package calls, with its own numbers, or that need several processes."""

KEYS = ("plans.Part", "plans.Plan", "plans.Stage", "plot_sweep")
"""Data whose fields are keys, as arrays cannot be."""

cluster = import_module("d2lmgpu.cluster")  # `d2l.cluster` is the function

ROOT = Path(__file__).parents[1]
MODULES = re.findall("automodule:: (.*)", (ROOT / "docs/reference.rst").read_text(encoding="utf-8"))
MODULES += ["d2lmgpu.collectives.network", "d2lmgpu.scaling", "d2lmgpu.cluster", "d2lmgpu.devices"]


def public():
    """The functions and classes of the package's public modules, by name; not those of errors."""
    found = {}
    for module in map(import_module, MODULES):
        for name, value in vars(module).items():
            own = getattr(value, "__module__", "").startswith("d2lmgpu") and not name.startswith("_")
            own = own and value.__module__ != "d2lmgpu.arguments"
            if own and callable(value) and not (inspect.isclass(value) and issubclass(value, Exception)):
                found[f"{module.__name__}.{name}".removeprefix("d2lmgpu.")] = value
    return found


def given(**arguments):
    return lambda folder: arguments


SCHEDULE = collectives.ring(3, 12)
PLAN = plans.PLANS["data"](2, 1, network=TINY)
SWITCH = wiring.full_switch(3, 1e9)
MESSAGES = {"startup": 1e-5, "occupancy": 1e-6, "beta": 1e-9, "gamma": 1e-9}
CNN = sequential((1, 6, 6), networks.Conv2d(3, 3), networks.ReLU(), networks.MaxPool2d(), Flatten(), Dense(4))
X = np.linspace(-1, 1, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6).astype(np.float32)
K = np.linspace(-1, 1, 4 * 3 * 3 * 3).reshape(4, 3, 3, 3).astype(np.float32)
COSTS = [{"F": 2.0, "B": 4, "I": 2, "W": 2, "update": 0.5}]


def measured():
    names = [("naive", 2), ("ring", 2), ("tree", 2), ("naive", 3), ("ring", 3), ("tree", 3)]
    return [
        collectives.Measurement(name, k, 4096, 1e-4 * k, 1e-4, 1e-3, 5, 1.0, 1.0, [1], 1, True) for name, k in names
    ]


def shrink(f):
    """A function like ``f`` whose result is only looked at: times differ from call to call."""
    return functools.wraps(f)(lambda *args, **named: untimed(f(*args, **named)))


def untimed(value):
    return type(value) if not isinstance(value, list) else [type(value), len(value)]


def queue_of(**arguments):
    queue = d2l.MinibatchQueue(**arguments)
    queue.shuffle(1)
    return queue.steps, queue.draws, [queue.next() for _ in range(queue.steps)]


def retrained(**arguments):
    model = d2l.Model(**arguments)
    return model, model.with_classes(["a", "b"]), model.predict(images())


CALLS = {
    "cluster.cluster": (d2l.cluster, given(devices=2, patience=60.0)),
    "cluster.as_cluster": (cluster.as_cluster, given(devices=[0, 1])),
    "minibatches": (d2l.minibatches, given(X=images(300, (1, 2, 2)), y=labels(300), batch_size=200, seed=3, epoch=2)),
    "choose_devices": (d2l.choose_devices, given(environment="cpu", devices=[0, 2])),
    "choose_devices by number": (d2l.choose_devices, given(environment="auto", devices=3)),
    "choose_devices by name": (d2l.choose_devices, given(environment="auto", devices=["cpu:0", "cpu:2"])),
    "devices.choose_indices": (devices.choose_indices, given(environment="cpu", devices=[0, 2])),
    "devices.check_devices": (devices.check_devices, given(devices=[1, 2])),
    "conv2d": (layers.conv2d, given(x=X, weight=K, bias=K[:, 0, 0, 0], stride=2, padding=1)),
    "conv2d on a device": (
        layers.conv2d,
        lambda folder: {
            "x": d2l.put(X, d2l.cpu(0)),
            "weight": d2l.put(K, d2l.cpu(0)),
            "bias": d2l.put(K[:, 0, 0, 0], d2l.cpu(0)),
            "stride": 2,
            "padding": 1,
        },
    ),
    "conv2d_grad": (
        lambda **flags: layers.conv2d_grad(X[:, :2, :4, :4], layers.conv2d(X, K[:2], K[:2, 0, 0, 0])[1], **flags),
        given(input_grad=False, weight_grad=True),
    ),
    "dense_grad": (
        lambda **flags: layers.dense_grad(X[0, 0], layers.dense(X[0, 0], X[0, 1], X[0, 1, 0])[1], **flags),
        given(input_grad=False, weight_grad=True),
    ),
    "layers.batch_norm_grad": (
        lambda **flags: layers.batch_norm_grad(X, layers.batch_norm(X, X[0, :, 0, 0], X[0, :, 0, 1])[1], **flags),
        given(input_grad=False),
    ),
    "flatten_grad": (layers.flatten_grad, given(dy=X.reshape(2, 108), x_shape=(2, 3, 6, 6))),
    "avg_pool2d": (layers.avg_pool2d, given(x=X, size=3)),
    "max_pool2d": (layers.max_pool2d, given(x=X, size=3)),
    "layers.zero_moments": (layers.zero_moments, given(channels=[3])),
    "layers.Draws": (
        lambda examples, **own: layers.dropout(X, 0.5, layers.Draws(**own).after(examples)),
        given(examples=200, seed=7, epoch=2, step=3, first=100, layer=1, units=(0, 1, 1)),
    ),
    "layers.dropout": (layers.dropout, given(x=X, p=0.25, draws=layers.Draws(1))),
    "layers.check_labels": (layers.check_labels, given(y=labels(), n=6, classes=3)),
    "layers.check_targets": (layers.check_targets, given(y=labels(), n=6, outputs=3, any_shape=False)),
    "networks.Network": (networks.Network, given(layers=tuple(TINY), input_shape=(1, 4, 4), classes=3)),
    "networks.Layer": (
        lambda **own: sequential(
            (1, 4, 4),
            lambda shape: networks.Layer(layers.flatten, layers.flatten_grad),
            lambda shape: networks.Layer(layers.dense, layers.dense_grad, **own),
        ),
        given(shapes=((16, 3), (3,)), channels=0, random=False),
    ),
    "networks.AvgPool2d": (
        lambda size: sequential((1, 6, 6), networks.AvgPool2d(size), Flatten(), Dense(2)),
        given(size=3),
    ),
    "networks.MaxPool2d": (
        lambda size: sequential((1, 6, 6), networks.MaxPool2d(size), Flatten(), Dense(2)),
        given(size=3),
    ),
    "networks.Conv2d": (
        lambda **own: sequential((1, 6, 6), networks.Conv2d(**own), Flatten(), Dense(2)),
        given(outputs=200, kernel_size=3, stride=2, padding=1),
    ),
    "networks.Dense": (lambda outputs: sequential((1, 28, 28), Flatten(), Dense(outputs)), given(outputs=10)),
    "networks.Dropout": (lambda p: sequential((1, 2, 2), Flatten(), networks.Dropout(p), Dense(2)), given(p=0.25)),
    "networks.sequential": (lambda shape: sequential(shape, Flatten(), Dense(2)), given(shape=(1, 20, 20))),
    "networks.logits": (networks.logits, given(X=images(), params=tiny_params(), network=TINY)),
    "networks.restored": (networks.restored, given(description=networks.described(CNN))),
    "networks.known_network": (
        networks.known_network,
        given(name="cnn", classes=200, input_shape=(3, 20, 20), width=0.5),
    ),
    "networks.lenet_network": (
        networks.lenet_network,
        given(width=2, batch_norm=True, input_shape=(3, 20, 20), classes=7),
    ),
    "networks.check_width": (networks.check_width, given(width=2)),
    "networks.try_loss": (networks.try_loss, given(loss=networks.CROSS_ENTROPY, y=labels(3), K=3)),
    "Model": (retrained, given(network=TINY, params=tiny_params(), classes=["a", "b", "c"], invert=True)),
    "Model.with_classes": (
        d2l.Model(TINY, tiny_params()).with_classes,
        given(classes=5, init="he", seed=3),
    ),
    "Model.with_classes by name": (d2l.Model(TINY, tiny_params()).with_classes, given(classes=["a", "b"])),
    "Model.save": (
        lambda classes, invert, folder: (
            d2l.Model(TINY, tiny_params(), (), classes, invert).save(folder / "m") or d2l.load_model(folder / "m")
        ),
        lambda folder: {"classes": ["a", "b", "c"], "invert": False, "folder": folder},
    ),
    "Model.read": (
        lambda shape, invert, folder: d2l.Model(sequential(shape, Flatten(), Dense(2)), [], (), None, invert).read(
            [folder / "pictures/train/cat/1.png"]
        ),
        lambda folder: {"shape": (1, 5, 5), "invert": True, "folder": folder},
    ),
    "Result": (
        d2l.train,
        lambda folder: (
            short_training()
            | {
                "devices": 2,
                "num_epochs": 2,
                "batch_size": 4,
                "loads": [1, 3],
                "optimizer": "momentum",
                "drop_last": True,
                "warmup": 1,
                "weight_decay": 0.5,
                "check_every": 1,
            }
        ),
    ),
    "train num_gpus": (d2l.train, lambda folder: short_training() | {"devices": None, "num_gpus": 2}),
    "train indices": (
        d2l.train,
        lambda folder: short_training() | {"devices": [0, 1], "num_epochs": 1, "metrics": None},
    ),
    "train split": (d2l.train, lambda folder: short_training() | {"devices": 2, "split": "zero1", "micro_batches": 2}),
    "train names": (
        d2l.train,
        lambda folder: short_training() | {"data": (images(), labels(), images(3), labels(3), ["a", "b", "c"])},
    ),
    "train checkpoint": (
        lambda folder, **named: d2l.train(**named, checkpoint=folder / f"run {len(list(folder.iterdir()))}"),
        lambda folder: (
            {name: value for name, value in short_training().items() if name != "checkpoint"}
            | {"folder": folder, "checkpoint_steps": 1}
        ),
    ),
    "confusion_matrix": (d2l.confusion_matrix, given(y=labels(), predicted=labels(), classes=20)),
    "training.why_diverged": (training.why_diverged, given(losses=[2.0, 9.0], network=TINY)),
    "parallel.check_loads": (parallel.check_loads, given(loads=[1, 2], k=2)),
    "parallel.measure_loads": (
        shrink(parallel.measure_loads),
        lambda folder: {
            "X": images(),
            "y": labels(),
            "params": tiny_params(),
            "devices": two(),
            "batch_size": 6,
            "network": TINY,
        },
    ),
    "MinibatchQueue": (
        queue_of,
        given(X=images(), y=labels(), devices=[0, 1], batch_size=4, seed=3, loads=[1, 3], drop_last=True),
    ),
    "exercises.compare": (exercises.compare, given(what="this", predicted=3, found=2.5)),
    "exercises.save_data": (
        lambda data: exercises.save_data("name", data) or Path("data/name.json").read_text(encoding="utf-8"),
        given(data={"a": [1, 2.5], "b": True}),
    ),
    "exercises.setting": (exercises.setting, given(full="3", quick="4")),
    "exercises.judge_file": (
        lambda seconds, folder: exercises.judge_file("ring", make_student(folder) / "ada/mine.py", seconds),
        lambda folder: {"folder": folder, "seconds": 60},
    ),
    "exercises.judge": (exercises.judge, given(name="ring", answer=None)),
    "sweeps.run_trial": (
        sweeps.run_trial,
        lambda folder: {
            "settings": {"batch_size": 6, "num_epochs": 1, "devices": 1, "limit": 6},
            "data": (images(6, (1, 28, 28)), labels(), images(3, (1, 28, 28)), labels(3)),
            "invert": False,
        },
    ),
    "sweep": (
        sweeps.sweep,
        lambda folder: {
            "trials": [{"batch_size": 6, "num_epochs": 1}],
            "mode": "simultaneous",
            "workers": 1,
            "data": (images(6, (1, 28, 28)), labels(), images(3, (1, 28, 28)), labels(3)),
            "progress": False,
        },
    ),
    "sweeps.grid": (
        lambda **values: sweeps.sweep(
            sweeps.grid(**values),
            mode="sequential",
            data=(images(6, (1, 28, 28)), labels(), images(3, (1, 28, 28)), labels(3)),
            progress=False,
        ),
        given(lr=[0.5, 0.25], batch_size=6, num_epochs=1, devices=[1, 2]),
    ),
    "plot_sweep": (
        d2l.plot_sweep,
        lambda folder: {"rows": d2l.load_sweep(folder / "rows.jsonl"), "x": "lr", "by": "devices"},
    ),
    "collectives.Transfer": (
        lambda **own: (
            collectives.prove([[collectives.Transfer(**own)], [collectives.Transfer(1, 0, 0, 200, "copy")]], 2, 200),
            collectives.Transfer(**own).size,
        ),
        given(source=0, destination=1, start=0, stop=200, op="add"),
    ),
    "collectives.chunk_bounds": (collectives.chunk_bounds, given(n=200, k=3)),
    "collectives.place": (collectives.place, given(schedule=SCHEDULE, members=[2, 0, 1], start=200)),
    "collectives.prove broadcast": (
        collectives.prove,
        given(schedule=collectives.tree(4, 200)[2:], k=4, n=200, goal="broadcast", root=0),
    ),
    **{f"collectives.{name}": (schedule, given(k=7, n=200)) for name, schedule in collectives.ALGORITHMS.items()},
    "collectives.all_gather": (collectives.all_gather, given(k=7, n=200)),
    "collectives.reduce_scatter": (collectives.reduce_scatter, given(k=7, n=200)),
    "collectives.hierarchical groups": (collectives.hierarchical, given(k=4, n=200, groups=[[0, 1], [2, 3]])),
    "collectives.bound": (collectives.bound, given(network=SWITCH, n=200, itemsize=8)),
    "collectives.simulate": (
        collectives.simulate,
        given(schedule=SCHEDULE, network=SWITCH, itemsize=200),
    ),
    "collectives.draw_bytes": (collectives.draw_bytes, given(schedule=SCHEDULE, k=3, itemsize=100)),
    "collectives.draw_steps": (collectives.draw_steps, given(schedule=SCHEDULE, k=3, n=12, columns=2)),
    "collectives.plot_times": (
        collectives.plot_times,
        given(algorithms={"ring": collectives.ring, "tree": collectives.tree}, network=SWITCH, sizes=[64, 200]),
    ),
    "collectives.plot_times by devices": (
        collectives.plot_times,
        given(
            algorithms={"ring": collectives.ring},
            network=lambda k: wiring.full_switch(k, 1e9),
            sizes=200,
            devices=[2, 4],
        ),
    ),
    "collectives.ring_along": (
        lambda k, n, both_ways: collectives.ring_along(wiring.torus(4), both_ways)(k, n),
        given(k=4, n=200, both_ways=True),
    ),
    "collectives.fewest_steps": (collectives.fewest_steps, given(network=wiring.torus(3), n=200, parts=1)),
    "collectives.write_html": (
        lambda folder, **own: (
            collectives.write_html(file=folder / "page.html", **own)
            or (folder / "page.html").read_text(encoding="utf-8")
        ),
        lambda folder: {"folder": folder, "schedule": SCHEDULE, "k": 3, "n": 12, "network": SWITCH, "itemsize": 8},
    ),
    "collectives.invent": (collectives.invent, given(network=SWITCH, n=200, itemsize=8)),
    "collectives.invented": (lambda k, n: collectives.invented(SWITCH)(k, n), given(k=3, n=200)),
    "collectives.measure": (
        shrink(collectives.measure),
        lambda folder: {
            "allreduce": d2l.allreduce,
            "devices": two(),
            "algorithm": "ring",
            "nbytes": 64,
            "schedule": collectives.ring(2, 16),
            "budget": 0.5,
            "first": 0,
            "k": 2,
        },
    ),
    "collectives.measure_allreduce": (
        shrink(lambda **own: list(collectives.measure_allreduce(**own))),
        given(devices=[0, 1], algorithms=["ring"], sizes=[64, 200]),
    ),
    "collectives.fit_virtual_devices": (
        collectives.fit_virtual_devices,
        given(measurements=measured(), algorithms=collectives.ALGORITHMS, cores=2),
    ),
    "collectives.virtual_devices": (
        lambda k, **own: collectives.virtual_devices(**own)(k),
        given(constants=MESSAGES, cores=2, k=4),
    ),
    "collectives.network.Network": (
        wiring.Network,
        given(
            name="bus",
            k=3,
            links=["bus"],
            bandwidth=4.0,
            route=wiring.pcie_bus(3, 1.0).route,
            latency=0.5,
            occupancy=0.5,
            reduce_seconds_per_byte=0.5,
            startup=0.5,
        ),
    ),
    "collectives.network.full_switch": (wiring.full_switch, given(k=200, bandwidth=128.0, latency=0.5)),
    "collectives.network.pcie_bus": (wiring.pcie_bus, given(k=3, bandwidth=128.0, latency=0.5)),
    "collectives.network.shared_cores": (
        wiring.shared_cores,
        given(k=4, cores=2, bandwidth=128.0, occupancy=0.5, latency=0.5, reduce_seconds_per_byte=0.5),
    ),
    "collectives.network.machines": (
        wiring.machines,
        given(k=9, size=4, inside=128.0, between=64.0, latency_inside=0.25, latency_between=0.5),
    ),
    "collectives.network.topology": (wiring.topology, given(name="hypercube", k=8)),
    "collectives.network.wired": (wiring.wired, given(wires=[(0, 1, 128.0), (1, 2, 64)], latency=0.5)),
    "collectives.network.rewired": (wiring.rewired, given(network=wiring.torus(4), changes={(0, 1): 64})),
    "collectives.network.torus": (wiring.torus, given(**{"*": [3, 2]}, bandwidth=128.0, latency=0.5)),
    "collectives.network.nvlink_ring": (wiring.nvlink_ring, given(k=3, bandwidth=128.0, latency=0.5)),
    "collectives.network.nvlink_mesh": (wiring.nvlink_mesh, given(bandwidth=200, latency=0.5)),
    "collectives.network.hypercube": (wiring.hypercube, given(dimensions=3, bandwidth=128.0, latency=0.5)),
    "collectives.network.fat_tree": (wiring.fat_tree, given(k=6, size=2, bandwidth=128.0, latency=0.5)),
    "collectives.network.dragonfly": (
        wiring.dragonfly,
        given(groups=3, size=2, inside=128.0, between=64.0, latency=0.5),
    ),
    **{
        f"plans.{f.__name__}": (f, given(k=3, micro_batches=100, network=TINY))
        for f in (plans.data, plans.zero1, plans.zero2, plans.zero3, plans.channels)
    },
    **{
        f"plans.{f.__name__}": (f, given(k=2, micro_batches=3, network=CNN, costs=[1, 0, 0, 0, 2.5]))
        for f in (plans.layers, plans.gpipe, plans.one_f_one_b, plans.zero_bubble)
    },
    "plans.data in buckets": (plans.data, given(k=2, network=TINY, buckets=True)),
    "plans.copies_of": (plans.copies_of, given(name="layers", copies=2, k=2, micro_batches=2, network=CNN)),
    "plans.copies_of channels": (plans.copies_of, given(name="channels", copies=2, k=2, micro_batches=2, network=CNN)),
    "plans.cut": (plans.cut, given(network=CNN, count=2, costs=[1, 0, 0, 0, 2])),
    "plans.simulate": (
        plans.simulate,
        given(plan=PLAN, network=SWITCH, costs=COSTS, batch_size=200, contention=[1, 1.5]),
    ),
    "plans.simulate in parts": (plans.simulate, given(plan=PLAN, costs=COSTS[0], batch_size=(3, 2))),
    "plans.prove in parts": (plans.prove, given(plan=PLAN, batch_size=(3, 2), kernels=True)),
    "plans.estimate_costs": (plans.estimate_costs, given(plan=PLAN, batch_size=200, speed=1024.0)),
    "plans.draw": (plans.draw, given(plan=PLAN, network=SWITCH, costs=COSTS, batch_size=200)),
    "plans.draw_splits": (plans.draw_splits, given(plans={"data": PLAN}, batch_size=200)),
    "plans.execute": (
        plans.execute,
        given(plan=PLAN, X=images(), y=labels(), params=tiny_params(), devices=[0, 1], lr=0.5),
    ),
    "plans.Execution": (
        lambda lr, examples, **own: plans.Execution(PLAN, tiny_params(), [0, 1], **own).step(
            images(), labels(), lr, examples=examples
        ),
        given(lr=0.5, examples=(4, 2), mixed=False, kernels=True, overlap=False),
    ),
    "plans.write_html": (
        lambda folder, **own: (
            plans.write_html(file=folder / "page.html", **own) or (folder / "page.html").read_text(encoding="utf-8")
        ),
        lambda folder: {"folder": folder, "plan": PLAN, "network": SWITCH, "costs": COSTS, "batch_size": 200},
    ),
    "plans.measure_costs": (
        shrink(plans.measure_costs),
        lambda folder: {"plan": PLAN, "devices": two(), "batch_size": 6, "rounds": 2},
    ),
    "plans.Compute": (
        lambda **own: (lambda plan: (plans.prove(plan, 6), plans.simulate(plan, batch_size=6).events))(
            PLAN._replace(steps=[[plans.Compute(**own), *PLAN.steps[0][1:]], *PLAN.steps[1:]])
        ),
        given(what="F", device=0, stage=0, micro_batch=0),
    ),
    "plans.Part": (
        lambda **own: plans.prove(PLAN._replace(layout=((plans.Part(**own),), PLAN.layout[1])), 6),
        given(stage=0, params=(0, 51), state=(0, 51)),
    ),
    "plans.Stage": (
        lambda **own: plans.prove(PLAN._replace(stages=(plans.Stage(**own),)), 6),
        given(first=0, stop=2, params=51),
    ),
    "plans.Plan": (
        lambda **own: (
            plans.prove(plans.Plan(*PLAN[:3], **own), 200),
            plans.simulate(plans.Plan(*PLAN[:3], **own), batch_size=256).seconds,
        ),
        given(micro_batches=2, layout=PLAN.layout, steps=PLAN.steps),
    ),
    "scaling.check_counts": (scaling.check_counts, given(counts=[1, 2, 4])),
    "scaling.Compute": (
        lambda n, **own: scaling.Compute(**own)(n),
        given(n=200, sizes=[100, 200], seconds=[0.5, 1.5]),
    ),
    "scaling.predict_scaling": (
        scaling.predict_scaling,
        given(
            compute=lambda n: n / 1024,
            counts=[1, 2],
            batch_size=200,
            elements=200,
            network=lambda k: wiring.full_switch(k, 1e6),
            mode="weak",
            places=2,
        ),
    ),
    "scaling.fit_messages": (
        shrink(scaling.fit_messages),
        lambda folder: {"devices": two(), "counts": [1, 2], "algorithm": "ring", "places": 2},
    ),
    "scaling.measure_scaling": (
        lambda **own: json.dumps(scaling.measure_scaling(**own).as_dict()) and None,
        lambda folder: {
            "devices": [0, 1],
            "counts": [1, 2],
            "steps": 1,
            "predict": False,
            "batch_size": 4,
            "repeats": 1,
            "width": 1,
            "network": TINY,
            "data": (images(), labels()),
        },
    ),
    "TensorBoard": (
        lambda histograms, folder: vars(d2l.TensorBoard(folder / "events", histograms))["_histograms"],
        lambda folder: {"histograms": True, "folder": folder},
    ),
    "Animator": (
        lambda x, y, **own: (lambda plot: (plot.add(x, y), plot.X, plot.Y, plot.fig))(d2l.Animator(**own)),
        given(x=3, y=[0.5, 2], legend=["a", "b"], xlim=(1, 20), ylim=[0, 1.5], nrows=1, ncols=2, figsize=(4, 3)),
    ),
    "DeviceArray": (lambda i, j: d2l.put(X, d2l.cpu(0))[i, 0:j], given(i=1, j=2)),
    "devices.Device": (
        lambda nbytes: (d2l.cpu(3).limit_memory(nbytes), d2l.cpu(3).limit_memory(None)),
        given(nbytes=200),
    ),
    "plot_history": (
        d2l.plot_history,
        lambda folder: {"history": d2l.train(**short_training()).history, "losses": [(0.5, 2.0), (1.0, 1.5)]},
    ),
    "grade": (
        lambda folder, **own: list(grade(make_student(folder), exercises=["ring"], **own))[0][0],
        lambda folder: {"folder": folder, "seconds": 60},
    ),
}


def make_student(folder):
    (folder / "students/ada").mkdir(parents=True, exist_ok=True)
    (folder / "students/ada/mine.py").write_text("def ring(k, n):\n    return []\n")
    return folder / "students"


def forms(value):
    """The other forms of a number, a flag or a list, by name."""
    if isinstance(value, bool):
        return {"np.bool_": np.bool_(value)}
    if isinstance(value, int):
        return {"np.int64": np.int64(value), "0-d": np.array(value)} | (
            {"np.uint8": np.uint8(value)} if 0 <= value < 256 else {}
        )
    if isinstance(value, float):
        return {"np.float64": np.float64(value)} | (
            {"np.float32": np.float32(value)} if float(np.float32(value)) == value else {}
        )
    if (
        type(value) in (list, tuple)
        and value
        and len({*map(type, value)}) == 1
        and isinstance(value[0], (int, float, str))
    ):
        more = {"Index": pandas.Index, "Series": pandas.Series} if pandas else {}
        if isinstance(value[0], str):
            more |= {"np.array of objects": functools.partial(np.array, dtype=object)}
        return {name: make(value) for name, make in ({"tuple": tuple, "np.array": np.array} | more).items()}
    return {}


def variants(value, path=""):
    """``value`` with one part in another form, and what was done, for each part and each form."""
    for name, other in forms(value).items():
        yield f"{path} as {name}", other
    if type(value) is dict:
        for key, part in value.items():
            yield from ((what, value | {key: other}) for what, other in variants(part, f"{path}[{key!r}]"))
    elif type(value) in (list, tuple):
        for i, part in enumerate(value):
            for what, other in variants(part, f"{path}[{i}]"):
                yield what, type(value)([*value[:i], other, *value[i + 1 :]])


TIMED = re.compile("second|busbw|algbw|phases|utilisation|time|examples_per|sha256_of|_device")


def plainly(value, seen=()):
    """A result as nested tuples with the types of all its parts, for comparing; times, which differ, only by type."""
    if id(value) in seen or inspect.isroutine(value) or isinstance(value, functools.partial):
        return type(value).__name__
    seen = (*seen, id(value))
    if isinstance(value, d2l.DeviceArray):
        return "on", str(value.device), plainly(d2l.to_host(value), seen)
    if isinstance(value, (np.ndarray, np.generic)):
        return (
            type(value).__name__,
            str(value.dtype),
            value.shape,
            value.tolist() if value.dtype != object else str(value),
        )
    if isinstance(value, Figure):
        return [text.get_text() for text in value.findobj(Text)], value.get_size_inches().tolist()
    if isinstance(value, dict):
        return [
            (plainly(key, seen), type(of).__name__ if TIMED.search(str(key)) else plainly(of, seen))
            for key, of in value.items()
        ]
    parts = [plainly(part, seen) for part in value] if isinstance(value, (list, tuple, set, frozenset)) else []
    about = (
        plainly(vars(value), seen)
        if hasattr(value, "__dict__") and not isinstance(value, (type, d2l.devices.Device))
        else ""
    )
    text = repr(value) if not parts and not about else ""
    return type(value).__name__, parts, about, re.sub("0x[0-9a-f]+", "", text)


def result_of(function, arguments):
    """What a call returns, and what it prints as: a generator's elements as a list."""
    front_doors.rng = np.random.default_rng(5)  # the same pictures again
    arguments = dict(arguments)
    result = function(*arguments.pop("*", ()), **arguments)
    result = list(result) if hasattr(result, "__next__") else result
    d2l.synchronize()
    return plainly(result)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    make_files(folder)
    return folder


CASES = {name: door for name, door in DOORS.items() if name != "gpu"} | CALLS


SLOW = ("grade", "scaling.measure_scaling", "sweep")


@pytest.mark.parametrize("name", [*sorted(CASES.keys() - {*SLOW}), *long(*SLOW)])
def test_numbers_of_numpy_are_pythons(name, folder, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    function, make = CASES[name]

    def arguments_of(folder):
        front_doors.rng = np.random.default_rng(4)
        return make(folder)

    monkeypatch.setattr(sys.modules["d2lmgpu.collectives.measure"], "repeats_in", lambda *_: 1)
    right, found = result_of(function, arguments_of(folder)), []
    said, count = capsys.readouterr().out, len(list(variants(arguments_of(folder))))
    assert "np." not in repr(right)
    for i in range(count):
        what, arguments = list(variants(arguments_of(folder)))[i]
        try:
            result = result_of(function, arguments)
        except Exception as error:
            result = error
        if result != right and not (name in KEYS and re.search("0-d|array|Index|Series", what)):
            found.append(f"{name}{what}: {difference(result, right)}")
    assert not found, "\n".join(found)
    assert "np." not in capsys.readouterr().out and "np." not in said


def difference(result, right):
    if isinstance(result, Exception):
        return repr(result)[:300]
    a, b = repr(result), repr(right)
    i = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
    return f"{a[max(0, i - 60) : i + 60]} instead of {b[max(0, i - 60) : i + 60]}"


def test_every_public_function_has_such_a_call():
    there = public()
    called = {id(there[name]) for name in CASES if name in there} | {id(function) for function, _ in DOORS.values()}
    exempt = {id(there[name]) for name in (*RESULTS, *INNER)}
    others = {name: value for name, value in there.items() if id(value) not in called | exempt}
    assert not {name for name, value in others.items() if {*parameters(value)} - {*NO_NUMBERS}}


def parameters(function):
    """The names of a function's parameters, or of a class's own constructor."""
    return [] if function.__init__ is object.__init__ else inspect.signature(function).parameters


@pytest.mark.parametrize("value", [True, np.bool_(True), np.array(True), 2.0, np.float64(2), np.array([2]), "2", None])
def test_what_is_no_whole_number_of_any_library(value):
    with pytest.raises(ValueError, match="n is .*; it should be a whole number, at least 1"):
        check_whole("n", value)
    with pytest.raises(d2l.DeviceError, match="a device's index is a whole number from 0 to 4,095, not "):
        d2l.cpu(value)


@pytest.mark.parametrize("names", [("cat", "dog"), {"cat": 1, "dog": 2}.keys(), map(str, ["cat", "dog"])])
def test_names_of_classes_may_be_anything_that_lists_them(names):
    assert d2l.Model(TINY, tiny_params()).with_classes(names).classes == ["cat", "dog"]
