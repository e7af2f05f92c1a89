"""The functions that check what they are given, each with a call that is right, of which tests make others.

`Door` reads a row of a table: each argument by its name, and ``...`` for the defaults of all others. Behind the doors
NumPy's own errors are good enough: a layer is what it computes.
"""

import ast
import inspect

import numpy as np
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu import collectives, exercises, experiments as sweeps, layers, networks, plans, training
from d2lmgpu.training import checkpoints

TINY = networks.sequential((1, 4, 4), networks.Flatten(), networks.Dense(3))
NORM = networks.sequential((1, 4, 4), networks.BatchNorm(), networks.Flatten(), networks.Dense(3))
rng = np.random.default_rng(5)


def two():
    return [d2l.cpu(0), d2l.cpu(1)]


def images(n=6, shape=(1, 4, 4)):
    return rng.random((n, *shape)).astype(np.float32)


def labels(n=6):
    return np.arange(n) % 3


def tiny_params():
    return d2l.init_params(network=TINY)


def on_two(arrays):
    return [d2l.get_params(arrays, device) for device in two()]


def right(logits, labels):
    return (logits.argmax(axis=1) == labels).sum()


def numbers(*shape):
    return np.linspace(-1, 1, np.prod(shape)).reshape(shape).astype(np.float32)


def make_files(folder):
    """A folder with pictures, a run's checkpoint and another one, and the rows of a sweep."""
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / "pictures" / part / name).mkdir(parents=True)
            Image.fromarray(np.zeros((4, 4), np.uint8)).save(folder / "pictures" / part / name / "1.png")
    trial, data = {"network": TINY, "batch_size": 6, "num_epochs": 1, "environment": "cpu"}, (images(), labels()) * 2
    d2l.sweep([trial], mode="sequential", results=folder / "rows.jsonl", data=data, progress=False)
    d2l.train(two(), data=data, network=TINY, num_epochs=1, progress=False, checkpoint=folder / "run")
    checkpoints.save_checkpoint(folder / "checkpoint", checkpoints.Checkpoint({"a": 1}, {}))


SCHEDULE = collectives.ring(3, 12)
PLAN = plans.PLANS["data"](2, 1, network=TINY)
SWITCH = collectives.network.full_switch(3, 1e9)
MODEL = d2l.Model(TINY, tiny_params())
QUEUE = d2l.MinibatchQueue(images(), labels(), two(), 4)
ORDERS = [[("F", 0, 0), ("B", 0, 0)], [("F", 0, 1), ("B", 0, 1)]]

DOORS = """
MODEL.export(path=folder / "model.npz")
MODEL.read(paths=[folder / "pictures" / "test" / "dog" / "1.png"])
MODEL.save(path=folder / "model")
QUEUE.shuffle(epoch=1, done=1)
checkpoints.load_checkpoint(path=folder / "checkpoint")
collectives.measure_allreduce(devices=two(), algorithms=["ring"], sizes=[64])
collectives.prove(schedule=SCHEDULE, k=3, n=12)
d2l.Animator(..., legend=["one", "other"])
d2l.Animator(legend=["one", "other"]).add(x=1, y=[0.5, None])
d2l.MinibatchQueue(..., X=images(), y=labels(), devices=two(), batch_size=4)
d2l.Settings(...)
d2l.allreduce(data=[d2l.put(images(), device) for device in two()], algorithm="naive")
d2l.confusion_matrix(y=labels(), predicted=labels(), classes=3)
d2l.cpu(i=0)
d2l.evaluate(params_or_device_params=tiny_params(), X=images(), y=labels(), devices=two(), network=TINY, statistics=(),
    loss="cross_entropy", metrics={"right": right})
d2l.get_params(params=tiny_params(), device=d2l.cpu(0))
d2l.gpu(i=0)
d2l.init_optimizer(name="adam", device_params=on_two(tiny_params()), weight_decay=0.1)
d2l.init_params(..., network=TINY)
d2l.lenet(X=images(2, (1, 28, 28)), params=d2l.init_params())
d2l.load_image_data(folder=folder / "pictures", input_shape=(1, 4, 4), invert=False)
d2l.load_image_folder(folder=folder / "pictures" / "train", input_shape=(1, 4, 4), invert=False)
d2l.load_model(path=folder / "run", network=TINY, loss="cross_entropy")
d2l.load_sweep(path=folder / "rows.jsonl")
d2l.loss_and_grads(..., X=images(), y=labels(), params=tiny_params(), network=TINY)
d2l.minibatches(X=images(), y=labels(), batch_size=4, seed=0, epoch=0)
d2l.play(schedule_or_plan=SCHEDULE, network=None, height=400)
d2l.plot_history(history=d2l.History.from_dict(training.load_run(folder / "run").state["history"]))
d2l.plot_sweep(..., rows=sweeps.load_sweep(folder / "rows.jsonl"))
d2l.predict(params_or_device_params=tiny_params(), X=images(), devices=two(), network=TINY, statistics=())
d2l.put(x=images(), device=d2l.cpu(0))
d2l.sgd(params=tiny_params(), grads=tiny_params(), lr=0.1, batch_size=4)
d2l.split_batch(X=images(), y=labels(), devices=two(), loads=[1, 2])
d2l.to_host(x=d2l.put(images(), d2l.cpu(0)))
d2l.train(..., devices=two(), batch_size=6, num_epochs=1, data=(images(), labels()) * 2, network=TINY, progress=False)
d2l.train_batch(..., X=images(), y=labels(), device_params=on_two(d2l.init_params(network=NORM)), devices=two(), lr=0.1,
    network=NORM, optimizer=d2l.init_optimizer("momentum", on_two(d2l.init_params(network=NORM))),
    statistics=on_two(networks.init_statistics(NORM)))
d2l.try_gpu(i=0)
exercises.check(name="ring", answer=None)
plans.compose(computations=ORDERS, micro_batches=2, network=TINY, stages=plans.cut(TINY, 1), name="a", algorithm="ring")
plans.prove(plan=PLAN, batch_size=6, optimizer="adam", dtype="float32")
training.load_run(path=folder / "run")
"""

TAKE_NUMBERS = """
MODEL.with_classes(classes=["a", "b"], seed=3)
collectives.ring(k=7, n=200)
collectives.simulate(schedule=SCHEDULE, network=SWITCH, itemsize=200)
d2l.choose_devices(environment="cpu", devices=[0, 2])
d2l.grid(lr=[0.5, 0.25], batch_size=6, devices=[1, 2])
d2l.train(devices=2, batch_size=6, num_epochs=1, data=(images(), labels()) * 2, network=TINY, progress=False,
    split="zero1", micro_batches=2)
layers.conv2d(x=numbers(2, 3, 6, 6), weight=numbers(4, 3, 3, 3), bias=numbers(4), stride=2, padding=1)
networks.known_network(name="cnn", classes=200, input_shape=(3, 20, 20), width=0.5)
plans.gpipe(k=2, micro_batches=3, network=networks.LENET)
plans.simulate(plan=PLAN, network=SWITCH, batch_size=200)
"""
"""Others that give the same whoever's numbers they are given, but do not check all that they take."""


NAMES = globals() | {"exercises": exercises, "layers": layers, "sweeps": sweeps, "training": training}


class Door:
    """A function, and its arguments, made anew for each call, as some are changed in place."""

    def __init__(self, row):
        call = ast.parse(row, mode="eval").body
        self.name, self.given = ast.unparse(call.func), {word.arg: ast.unparse(word.value) for word in call.keywords}
        self.function = eval(self.name, NAMES)
        parameters = inspect.signature(self.function).parameters.values() if call.args else ()
        self.defaults = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}

    def arguments(self, folder):
        return self.defaults | {name: eval(text, NAMES, {"folder": folder}) for name, text in self.given.items()}


def read(*tables):
    doors = [Door(row) for row in "".join(tables).replace("\n    ", " ").splitlines() if row]
    return {f"{door.name} {door.given.get('split', '')}".strip(): door for door in doors}
