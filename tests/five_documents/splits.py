"""Other ways to split a step than data parallelism, as plans that are proved, timed, drawn and run."""

from pathlib import Path

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.networks import DEEP
from d2lmgpu.plans import PLANS, draw_splits, prove, simulate

from .common import TINY, close, command, is_picture, once, result_of, trained
from .rows import article, guide, others, textbook


@textbook("network partitioning", "layer-wise partitioning")
@article("other strategies")
@others("pipelines")
def splits_that_train():
    for split, devices in {"layers": 2, "channels": 3}.items():
        close(trained(devices, split=split).params, once(1).params)
    ways = [(devices, {"split": split}) for split, devices in {"zero1": 2, "channels": 2, "data=2,layers=2": 4}.items()]
    ways += [(2, {"split": "layers", "pipeline": p, "micro_batches": 3}) for p in ("gpipe", "1f1b", "zero-bubble")]
    for devices, settings in ways:
        close(trained(devices, network=TINY, **settings).params, once(1, network=TINY).params)


@article("train networks that no single GPU")
@others("shards of parameters")
def larger_networks():
    """In the order of the words: what a device needs between steps, and that training does not go beyond it."""
    whole, parts = (max(prove(PLANS[name](4), optimizer="momentum").between) for name in ("data", "zero3"))
    assert 4 * parts < 1.1 * whole
    result = trained(2, split="zero3", network=TINY)
    close(result.params, once(1, network=TINY).params)
    assert result.history.split == "zero3" and len(result.history.peak_memory) == 2


@textbook("each GPU then needs", "memory then grows", "more GPUs allow no larger")
def memory_of_splits():
    """By layers all devices together hold the network once, by channels almost, with data parallelism each all."""
    between = {
        (name, k): prove(PLANS[name](k, network=DEEP), batch_size=64).between
        for name in ("layers", "channels", "data")
        for k in (1, 2, 4)
    }
    (whole,) = between["data", 1]
    assert sum(between["layers", 4]) == between["layers", 1][0] and max(between["layers", 4]) < whole
    assert max(between["channels", 2]) < 0.52 * whole and max(between["channels", 4]) < 0.27 * whole
    assert {max(between["data", k]) for k in (1, 2, 4)} == {whole}


@textbook("devices wait for each other")
def bubbles():
    even = {"F": 1.0, "B": 2.0, "update": 0.0}
    waits = [simulate(PLANS["gpipe"](4, m, network=DEEP), costs=even).bubble for m in (1, 4, 16)]
    np.testing.assert_allclose(waits, [3 / 4, 3 / 7, 3 / 19], rtol=1e-6)


@textbook("activations and their gradients cross", "it needs very many synchronisations")
def what_is_sent():
    """What crosses a cut between layers goes once forward and once back; channels cost more."""
    sent = prove(PLANS["layers"](2), batch_size=8).sent
    assert sent[0] == sent[1] > 0 and sent[0] % (8 * 4) == 0
    plans = {name: result_of(f"plan --split {name} --devices 4") for name in ("channels", "layers", "data")}
    assert plans["channels"]["bytes"] > max(plans["layers"]["bytes"], plans["data"]["bytes"])
    exchanges = {name: sum(map(len, PLANS[name](4).actions)) for name in ("channels", "layers")}
    assert exchanges["channels"] > 2 * exchanges["layers"]


def seconds(batch_size, devices, on="ethernet"):
    """A step of data parallelism, as `d2lmgpu plan` tells."""
    text = f"plan --split data --network lenet --batch-size {batch_size} --devices {devices} --on {on}"
    return result_of(text)["seconds"]


@guide("use larger minibatches if", "find out how much slower", "find out how much faster")
def what_wires_cost():
    small, large = (seconds(size, 1) / seconds(size, 4) for size in (64, 4096))
    assert small < large <= 4
    assert seconds(256, 16, "full_switch") < seconds(256, 16, "machines") < seconds(256, 16, "ethernet")


@textbook("the picture of these steps", "the ways to split")
def pictures_of_splits():
    page = d2l.play(PLANS["data"](2))
    assert "<html" in page._repr_html_() or "iframe" in page._repr_html_()
    assert len(draw_splits({name: PLANS[name](2) for name in ("layers", "channels", "data")}).axes) == 3
    command("plan --split layers --devices 2 --plot layers.png")
    is_picture("layers.png")


@textbook("the chapter as a program")
def notebooks():
    command("course mycourse --no-data")
    names = {path.name for path in Path("mycourse").glob("*.ipynb")}
    assert {"04_copies_and_synchronisation.ipynb", "05_training_on_k_devices.ipynb"} <= names
