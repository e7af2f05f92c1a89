"""What one call of `d2l.train`, or one command, does."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from clusters_in_threads import in_each

import d2lmgpu as d2l
from d2lmgpu.data import fashion_mnist
from d2lmgpu.networks import CNN, LENET_BN, Conv2d, Dense, Flatten, MaxPool2d, ReLU, channels, described, sequential

from .common import OPTIONS, TINY, close, command, cpus, is_picture, once, refused, result_of, trained
from .rows import article, guide, japanese, loops, others, textbook


class Told(d2l.Callback):
    """Keeps what it is told; ends training after so many steps."""

    def __init__(self, steps=None):
        self.steps, self.told, self.ended = steps, [], False

    def on_start(self, history, steps):
        self.history, self.of = history, steps

    def on_step(self, epoch, step, loss):
        self.told.append((epoch, step, loss, self.history.learning_rate))
        return len(self.told) == self.steps

    def on_end(self, history):
        self.ended = True


@guide("train one network on several")
@loops("the training accuracy of the whole")
@article("data parallelism", "train the model")
@textbook("two GPUs learn", "data parallelism", "exchange gradients while")
@others("gradients in buckets")
def several_devices():
    one, two = once(1), once(2)
    assert two.history.devices == ["cpu(0)", "cpu(1)"]
    assert trained(2, split="data").history.final_parameters_sha256 == two.history.final_parameters_sha256
    ways = [trained(2, flat=False), trained(3, overlap=True), trained(3, loads=[3, 1, 1]), once(5)]
    for result in (two, *ways):
        close(result.params, one.params)
        np.testing.assert_allclose(result.history.train_loss, one.history.train_loss, rtol=1e-4)
        assert result.history.train_accuracy == one.history.train_accuracy
    assert 0 < one.history.train_accuracy[0] < 1


@guide("work on a remote machine")
@japanese("find out that a worker with load 0")
@loops("on one or several CPUs", "the current epoch")
@article("plots of a run")
@textbook("its last line")
def what_a_run_prints(monkeypatch):
    """It needs no screen, and names a device without work."""
    monkeypatch.delenv("DISPLAY", raising=False)
    text = command(f"train --environment cpu --devices 3 --loads 1,0,1 --plot run.png {OPTIONS} --epochs 2")
    assert "epoch 1/2: " in text and "epoch 2/2: " in text
    assert "cpu(1)" in text.split("devices worked")[0]
    for line, devices in (text.splitlines()[-1], 3), (once(2).history.summary(), 2):
        assert re.fullmatch(rf"test acc: 0\.\d\d, \d.*? sec/epoch on {re.escape(str(cpus(devices)))}", line), line
    is_picture("run.png")


@guide("keep all options of a run")
@textbook("the experiment on one GPU", "the whole loop")
def options_as_a_value():
    settings = d2l.Settings(batch_size=24, num_epochs=1, lr=0.05, seed=3)
    history, _ = d2l.train([d2l.cpu(0)], settings, progress=False)
    assert (history.batch_size, history.lr, history.seed) == (24, 0.05, 3)
    settings = d2l.Settings()
    assert (settings.batch_size, settings.lr, settings.num_epochs) == (256, 0.2, 10)
    history, _ = d2l.train(num_gpus=2, batch_size=24, lr=0.2, num_epochs=1, progress=False)
    assert (history.devices, history.init) == (["cpu(0)", "cpu(1)"], "normal")


@guide("predict on several GPUs", "predict on a cluster")
@textbook("prediction on several GPUs")
@others("predictions")
def prediction_on_several():
    result = trained(1, network=TINY, checkpoint="run.ckpt")
    X = d2l.load_fashion_mnist()[2][:7]
    one = result.model.predict(X, 1)
    np.testing.assert_allclose(one.sum(axis=1), 1, rtol=1e-6)
    everywhere = in_each([1, 2], lambda cluster: d2l.predict(result.params, X, cluster, TINY))
    for several in (d2l.predict(result.params, X, 3, TINY), *everywhere):
        np.testing.assert_allclose(several, one, rtol=1e-5)
    assert "test acc: " in command("predict run.ckpt --devices 3")


@guide("scale the minibatch", "scale the learning rate")
@loops("scale the minibatch")
@article("a minibatch size for each", "scale the learning rate", "raise the learning rate")
@textbook("exercise 1")
def the_minibatch_and_the_rate_scale():
    told = Told()
    settings = {"batch_size": 10, "num_epochs": 2, "warmup": 1, "lr": 0.01, "callbacks": [told]}
    history = trained(2, scale_batch=True, network=TINY, **settings).history
    assert (history.batch_size, history.lr) == (20, 0.02)
    np.testing.assert_allclose([rate for *_, rate in told.told], [0.02 / 3, 0.04 / 3, 0.02, 0.02, 0.02, 0.02])


@guide("divide the work unevenly")
@article("give each GPU work", "see whether the work is balanced")
@others("how busy each device is")
def loads():
    X = np.zeros((16, 1))
    shards, _ = d2l.split_batch(X, X[:, 0], cpus(5), loads=[1, 1, 1, 0, 1])
    assert [len(shard) for shard in shards] == [4, 4, 4, 0, 4]
    history = trained(5, loads=[1, 1, 1, 0, 1], network=TINY).history
    assert history.loads == [1, 1, 1, 0, 1]
    busy = history.utilisation
    assert busy.pop("cpu(3)") == 0 and all(0 < part <= 1 for part in busy.values()) and len(busy) == 4
    assert "devices worked" in history.balance()


@guide("train it on a cluster")
@loops("only one worker reports")
@others("several processes and machines")
def on_a_cluster():
    """Of three devices, of which the first process has one, and the second two."""
    histories = [result.history for result in (*in_each([1, 2], trained), once(3))]
    for name in ("final_parameters_sha256", "train_loss", "test_accuracy"):
        one, other, alone = (getattr(history, name) for history in histories)
        assert one == other == alone, name


@guide("train on a remote cluster", "on one machine, `")
def a_cluster_is_devices():
    """A program that was started alone has a cluster of one process."""
    assert trained(d2l.cluster(2)).history.final_parameters_sha256 == once(2).history.final_parameters_sha256
    refused(d2l.DeviceError, lambda: d2l.choose_devices("parallel"), "mpiexec", "d2l.cluster()")


@japanese("the number of a worker")
@loops("stop with a button")
def ending():
    """One of two processes says so."""

    def stop(cluster):
        return trained(cluster, num_epochs=50, callbacks=[Told(4 if cluster.rank else None)]).history

    assert in_each([1, 2], lambda cluster: (cluster.rank, cluster.size, len(cluster))) == [(0, 2, 3), (1, 2, 3)]
    one, other = in_each([1, 1], stop)
    assert one.interrupted["steps"] == other.interrupted["steps"] and one.interrupted["epoch"] < 10
    assert one.final_parameters_sha256 == other.final_parameters_sha256


@loops("how long training takes", "send data from the workers", "your own metrics", "the loss at each iteration")
@article("callbacks during training", "train for a number of epochs", "keep the data in memory", "optimiser, loss and")
@textbook("a plot of the accuracy")
@others("callbacks", "learning rates that follow", "metrics over all")
def what_is_told(monkeypatch):
    """Of one run: its times, its steps, its metrics and its plot. However long it is, each file is read once."""

    def right(outputs, labels):
        return (outputs.argmax(axis=1) == labels).sum()

    read, names = fashion_mnist.read_idx, []
    monkeypatch.setattr(fashion_mnist, "read_idx", lambda path: names.append(path.name) or read(path))
    told = Told()
    ways = {"num_epochs": 4, "metrics": {"right": right}, "schedule": lambda part: 1 - part, "callbacks": [told]}
    ways |= {"optimizer": "adam", "lr": 0.01}
    history = trained(3, network=TINY, **ways).history
    assert sorted(names) == sorted(fashion_mnist.FILES) and len(history.seconds_per_epoch) == 4
    np.testing.assert_allclose(history.examples_per_second, 240 / sum(history.seconds_per_epoch))
    assert [(epoch, step) for epoch, step, *_ in told.told] == [(e, s) for e in range(4) for s in (1, 2, 3)]
    assert told.of == 3 and told.ended and any(loss for _, _, loss, _ in told.told)
    np.testing.assert_allclose([rate for *_, rate in told.told], history.lr * (1 - np.arange(12) / 3 / 4))
    np.testing.assert_allclose(history.metrics["right"], history.test_accuracy)
    assert list(d2l.plot_history(history).axes[0].lines[-1].get_ydata()) == history.test_accuracy


@loops("networks as values", "find the layers")
@article("a data set from your own arrays", "the article's CNN")
@others("networks of layers")
def networks_of_layers():
    """The article's layers; and pictures of one's own."""
    assert [param.shape for param in d2l.init_params(network=TINY)] == [(3, 1, 5, 5), (3,), (108, 10), (10,)]
    assert channels(LENET_BN) == [20, 50] == [layer.channels for layer in LENET_BN if layer.channels]
    by_hand = sequential((1, 28, 28), *(Conv2d(32, 3), ReLU(), MaxPool2d(), Flatten()), *(Dense(64), ReLU(), Dense(10)))
    assert described(by_hand) == described(CNN) and trained(2, network="cnn").history.network == "cnn"
    rng = np.random.default_rng(0)
    data = [part for n in (30, 20) for part in (rng.random((n, 3, 9, 8), np.float32), rng.integers(0, 4, n))]
    network = sequential((3, 9, 8), Conv2d(4, 3), ReLU(), MaxPool2d(), Flatten(), Dense(4))
    assert trained(2, data=data, network=network).model.predict(data[2], 2).shape == (20, 4)


@loops("the statistics after training")
@textbook("batch norm with separate")
def batch_norm_for_each():
    usual, local = (trained(2, network="lenet-bn", **options) for options in ({}, {"batch_statistics": "local"}))
    assert usual.history.final_parameters_sha256 == local.history.final_parameters_sha256
    assert usual.history.batch_statistics == "local"
    assert [len(array) for array in usual.statistics] == [20, 20, 50, 50]
    X, y = d2l.load_fashion_mnist()[2:]
    assert usual.model.evaluate(X, y) == usual.history.test_accuracy[-1]


@article("labels as whole numbers", "prefetch the next minibatch")
@others("one-hot and soft labels", "minibatches loaded ahead", "other losses")
def data_and_losses():
    """Vectors for labels and floats for bytes learn the same; a mean over 10 outputs is a fifth of half of the sum."""

    def half(outputs, targets):
        difference = outputs - targets
        return (difference**2).sum() / 2, difference

    plain = once(2, network=TINY)
    waiting = trained(2, network=TINY, prefetch=False)
    assert plain.history.final_parameters_sha256 == waiting.history.final_parameters_sha256
    X, y, X_test, y_test = d2l.load_fashion_mnist()
    vectors = [np.eye(10, dtype=np.float32)[labels] for labels in (y, y_test)]
    data = d2l.to_float(X), vectors[0], d2l.to_float(X_test), vectors[1]
    result = trained(2, network=TINY, data=data)
    close(result.params, plain.params)
    assert result.history.test_accuracy == plain.history.test_accuracy
    mean = trained(2, network=TINY, loss="squared_error", data=data, lr=0.1)
    own = trained(1, network=TINY, loss=(half, lambda difference: difference), data=data, lr=0.1 / 5)
    close(own.params, mean.params)


@article("16 bits where they are enough")
@others("16 bits")
def mixed():
    ways = [trained(k, precision="mixed", network="lenet") for k in (1, 2)]
    assert all(param.dtype == np.float32 for param in ways[1].params)
    np.testing.assert_allclose(ways[0].history.train_loss, ways[1].history.train_loss, rtol=1e-2)


@others("a model as a file")
def models_as_files():
    model = once(1, network=TINY).model
    model.save("tiny.model")
    close(d2l.load_model("tiny.model").params, model.params)
    model.export("tiny.npz")
    with np.load("tiny.npz") as arrays:
        np.testing.assert_array_equal(arrays["4.weight"], model.params[2].T)


@guide("train in the background")
@loops("train several networks with your own loops", "the same bits each time")
def at_the_same_time():
    def train(trial):
        return trained([d2l.cpu(trial["number"])], network=TINY, seed=trial["seed"])

    with ThreadPoolExecutor(2) as executor:
        runs = [executor.submit(train, {"number": i, "seed": i}) for i in range(2)]
        histories = [run.result().history for run in runs]
    assert [history.devices for history in histories] == [["cpu(0)"], ["cpu(1)"]]
    alone = train({"number": 1, "seed": 1}).history
    first, second, again = (history.final_parameters_sha256 for history in (*histories, alone))
    assert first != second == again


@guide("try several minibatch sizes", "find the best size", "find out how large minibatches")
@loops("or one after the other")
@textbook("many GPUs make minibatches", "minibatches k times", "exercise 2")
def a_sweep():
    grid = {"devices": [1, 2], "lr": [0.01, 0.02], "batch_size": [12]}
    rows = d2l.sweep(
        d2l.grid(**grid, scale_batch=True, num_epochs=2, warmup=1, network=TINY), mode="sequential", progress=False
    )
    assert [row["history"]["lr"] for row in rows] == [0.01, 0.02, 0.02, 0.04]
    assert rows[-1]["history"]["devices"] == ["cpu(0)", "cpu(1)"]
    assert [row["history"]["batch_size"] for row in rows] == [12, 12, 24, 24]
    d2l.plot_sweep(rows, x="lr", y="best accuracy", by="devices").savefig("sweep.png")


@guide("find out whether several GPUs help")
@textbook("why a second GPU does not help")
def what_a_step_takes():
    assert min(once(2).history.phases[name] for name in ("forward", "backward", "update")) > 0
    rows = result_of("scaling --devices 1,2 --steps 1 --repeats 1 --batch-size 24")["rows"]
    assert [row["devices"] for row in rows] == [1, 2]
    assert rows[1]["speedup"] == rows[0]["seconds_per_epoch"] / rows[1]["seconds_per_epoch"]
