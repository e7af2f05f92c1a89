"""MATLAB's guide "Deep Learning with MATLAB on Multiple GPUs", in its own order, and what its Japanese edition adds."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from clusters_in_threads import in_each

import d2lmgpu as d2l
from d2lmgpu.parallel.shards import shard_bounds

from .items import OPTIONS, TINY, close, command, is_picture, items_of, on_one, refused, result_of, trained

guide, japanese = items_of("guide"), items_of("japanese")


@guide("train one network on several GPUs of a machine", "`d2l.train(2)`, `d2lmgpu train --devices 2`")
def several_devices():
    one, two = on_one(), trained(2)
    assert two.history.devices == ["cpu(0)", "cpu(1)"]
    close(two.params, one.params)
    assert command(f"train --devices 2 {OPTIONS}").rstrip().endswith("on [cpu(0), cpu(1)]")


@guide(
    "train it on a cluster",
    "`mpiexec -n 4 d2lmgpu train --environment parallel`, `d2l.train(d2l.cluster())`: "
    "[Several processes](cluster.md#training)",
)
def on_a_cluster():
    """Of three devices, of which the first process has one, and the second two."""
    everywhere = in_each([1, 2], trained)
    assert {result.history.final_parameters_sha256 for result in everywhere} == {
        trained(3).history.final_parameters_sha256
    }


guide(
    "train it in the cloud, as in an example",
    "not here: this package rents no machines. To use GPUs that others lend, see [Colab and Kaggle](colab.md)",
)


@guide(
    "find out whether several GPUs help: how much of a step does a device compute?",
    "`history.phases`, `d2lmgpu scaling --devices 1,2`",
)
def what_a_step_takes():
    history = trained(2).history
    assert min(history.phases[name] for name in ("forward", "backward", "update")) > 0
    rows = result_of("scaling --devices 1,2 --steps 1 --repeats 1 --batch-size 24")["rows"]
    assert [row["devices"] for row in rows] == [1, 2]
    assert rows[1]["speedup"] == rows[0]["seconds_per_epoch"] / rows[1]["seconds_per_epoch"]


def seconds(batch_size, devices, on="ethernet"):
    """A step of data parallelism, as `d2lmgpu plan` tells."""
    text = f"plan --split data --network lenet --batch-size {batch_size} --devices {devices} --on {on}"
    return result_of(text)["seconds"]


@guide(
    "use larger minibatches if steps are short and communication takes up much of their time",
    "`d2lmgpu plan --split data --devices 4 --batch-size 4096`, `d2lmgpu scaling --batch-size 2048 --predict`",
)
def larger_minibatches_gain_more():
    small, large = (seconds(size, 1) / seconds(size, 4) for size in (64, 4096))
    assert small < large <= 4


@guide(
    "find out how much slower training is with the GPUs in different machines",
    "`d2lmgpu plan --devices 16 --on ethernet`, compared with `d2lmgpu plan --devices 16 --on full_switch`",
)
def between_machines():
    assert seconds(256, 16, "full_switch") < seconds(256, 16, "machines") < seconds(256, 16, "ethernet")


guide(
    "find out how much faster wires between machines help",
    "`d2lmgpu plan --devices 16 --on machines`; for your own wires `collectives.network.machines`",
    between_machines,
)


@guide(
    'use all GPUs of the machine with one option, without other changes (`ExecutionEnvironment="multi-gpu"`)',
    '`d2l.train(environment="multi-gpu")`, `d2lmgpu train --environment multi-gpu`',
)
def all_gpus(cards):
    history = trained(environment="multi-gpu", network=TINY).history
    assert history.devices == ["gpu(0)", "gpu(1)"] and history.environment == "multi-gpu"


@guide(
    "let the program find GPUs by itself",
    "`d2l.train()`, `d2l.try_all_gpus()`; without a GPU, they use a virtual device",
)
def gpus_are_found(cards):
    assert d2l.try_all_gpus() == [d2l.gpu(0), d2l.gpu(1)]
    assert trained(network=TINY).history.devices == ["gpu(0)"]


@guide(
    'train on a remote cluster with one option (`"parallel"`)',
    "`mpiexec -n 4 d2lmgpu train --environment parallel --devices 2`, in a program `d2l.train(d2l.cluster(2))`",
)
def a_cluster_is_devices():
    """A program that was started alone has a cluster of one process."""
    alone, plain = trained(d2l.cluster(2)), trained(2)
    assert alone.history.final_parameters_sha256 == plain.history.final_parameters_sha256
    refused(d2l.DeviceError, lambda: d2l.choose_devices("parallel"), "mpiexec", "d2l.cluster()")


guide(
    "on a cluster with GPUs, only the GPUs compute; a worker without its own GPU does nothing",
    "`mpiexec -n 4 d2lmgpu train --environment parallel`: [GPUs of several processes](cluster.md#gpus)",
    "test_cluster_gpus.py::test_processes_of_a_machine_take_its_gpus",
)
guide(
    "each worker has a different GPU",
    "`d2l.cluster()` gives each process a GPU that no lower rank on the machine has",
    "test_cluster_gpus.py::test_each_process_takes_cards_of_its_own",
)
guide(
    "scale up to more machines",
    "`mpiexec -f hosts -n 2 d2lmgpu train --environment parallel`: [Several machines](cluster.md#several-machines)",
    "test_hosts.py::test_hosts_learn_what_one_process_learns",
)
guide(
    "buy the toolboxes it needs, and a licence for a cluster",
    "not here: there is nothing to buy; `pip install -e '.[gpu]'` is for GPUs, `pip install -e '.[cluster]'` for MPI",
)


guide(
    "find out which GPUs are supported, and whether yours is",
    "`d2lmgpu devices --check`; [GPUs](gpu.md#installing)",
    "test_checkup.py::test_a_good_machine",
)


@guide(
    "work on a remote machine, by ssh or remote desktop, with the same code",
    "`d2lmgpu train --plot run.png` needs no screen",
)
def no_screen_is_needed(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    command(f"train --plot run.png {OPTIONS}")
    is_picture("run.png")


@guide(
    "keep all options of a run in one value (`trainingOptions`)",
    "`d2l.Settings(lr=0.1)`, `d2l.train(devices, settings)`",
)
def options_as_a_value():
    settings = d2l.Settings(batch_size=24, num_epochs=1, lr=0.05, seed=3)
    history, _ = d2l.train([d2l.cpu(0)], settings, progress=False)
    assert (history.batch_size, history.lr, history.seed) == (24, 0.05, 3)
    refused(ValueError, lambda: d2l.Settings(lr=-1), "lr")


@guide(
    "predict on several GPUs (`predict`, `minibatchpredict`)",
    "`d2l.predict(params, X, devices)`, `model.predict(X, d2l.try_all_gpus())`, "
    "`d2lmgpu predict run.ckpt --environment multi-gpu`",
)
def prediction_on_several():
    result = trained(1, network=TINY, checkpoint="run.ckpt")
    X = d2l.load_fashion_mnist()[2][:7]
    one = result.model.predict(X, 1)
    np.testing.assert_allclose(d2l.predict(result.params, X, 3, TINY), one, rtol=1e-5)
    np.testing.assert_allclose(one.sum(axis=1), 1, rtol=1e-6)
    assert "test acc: " in command("predict run.ckpt --devices 3")
    refused(d2l.DeviceError, lambda: d2l.choose_devices("multi-gpu"), "needs a GPU")


guide(
    "classify on several GPUs: the class of each picture (`classify`)",
    "`d2lmgpu predict run.ckpt photo.png --devices 2`; `model.classes`",
    "test_image_folders.py::test_the_commands",
)


@guide(
    'predict on a cluster (`"parallel"`)',
    "`mpiexec -n 4 d2lmgpu predict run.ckpt --environment parallel`, `d2l.predict(params, X, d2l.cluster())`: every "
    "process has all probabilities",
)
def prediction_on_a_cluster():
    params, X = d2l.init_params(init="he", network=TINY), d2l.load_fashion_mnist()[2][:7]
    one = d2l.predict(params, X, [d2l.cpu(0)], TINY)
    for probabilities in in_each([1, 2], lambda cluster: d2l.predict(params, X, cluster, TINY)):
        np.testing.assert_allclose(probabilities, one, rtol=1e-5)


guide(
    "a pool with one worker for each GPU starts automatically",
    "devices need not be started: `d2l.try_all_gpus()` returns one for each GPU",
    gpus_are_found,
)


guide(
    "cluster profiles that say how workers are started",
    "not here: `mpiexec` and Slurm have their own files for that: [Several machines](cluster.md#several-machines)",
)


guide(
    "without GPUs, all CPU workers of the pool train",
    "`mpiexec -n 4 d2lmgpu train --environment parallel`: without GPUs, each process has a virtual device",
    "test_across.py::test_the_command_under_mpiexec",
)


@guide(
    "train by minibatches, because the data set is larger than a GPU's memory",
    "`d2l.minibatches(X, y, 256, seed=0, epoch=0)`, `d2l.MinibatchQueue(X, y, devices, 256)`",
)
def minibatches_are_of_the_host():
    """Of the data only minibatches are on a device, whose memory would not take it all."""
    X, y, _, _ = d2l.load_fashion_mnist()
    device = d2l.cpu(5)
    device.limit_memory(X.nbytes // 2)
    try:
        queue = d2l.MinibatchQueue(X, y, [device], 2)
        assert sum(len(shards[0]) for shards, _ in queue) == len(X)
        refused(d2l.DeviceError, lambda: d2l.put(np.zeros(X.nbytes, np.uint8), device), "cpu(5)")
    finally:
        device.limit_memory(None)


@guide(
    "try several minibatch sizes (`MiniBatchSize`)",
    "`d2lmgpu train --batch-size 128`, `d2lmgpu sweep --batch-size 64,128,256 --x batch_size`",
)
def sizes_of_minibatches():
    rows = d2l.sweep(d2l.grid(batch_size=[12, 24], num_epochs=1, network=TINY), mode="sequential", progress=False)
    assert [row["history"]["batch_size"] for row in rows] == [12, 24]


guide(
    "find the best size for this network, this data set and this machine",
    '`d2lmgpu sweep --batch-size 64,128 --x batch_size --y "seconds per epoch"`, `d2lmgpu scaling --batch-size 128`',
    sizes_of_minibatches,
)


@guide(
    "each minibatch is distributed over the GPUs",
    "`d2l.split_batch(X, y, devices)`; `d2l.train` does this automatically",
)
def a_minibatch_is_distributed():
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10)
    X_shards, y_shards = d2l.split_batch(X, y, [d2l.cpu(i) for i in range(3)])
    assert [len(shard) for shard in X_shards] == [4, 3, 3]
    np.testing.assert_array_equal(np.concatenate(list(map(d2l.to_host, X_shards))), X)
    assert [shard.device for shard in y_shards] == [d2l.cpu(i) for i in range(3)]


@guide(
    "use larger minibatches, since several GPUs have more memory together",
    "`d2l.split_batch(X, y, devices)` distributes a minibatch that is too large for one device",
)
def memory_adds_up():
    X, devices = np.zeros((8, 1, 28, 28), np.float32), [d2l.cpu(6), d2l.cpu(7)]
    for device in devices:
        device.limit_memory(X.nbytes * 2 // 3)
    try:
        refused(d2l.DeviceError, lambda: d2l.split_batch(X, np.zeros(8, int), devices[:1]), "cpu(6)")
        assert [len(shard) for shard in d2l.split_batch(X, np.zeros(8, int), devices)[0]] == [4, 4]
    finally:
        for device in devices:
            device.limit_memory(None)


@guide(
    "scale the minibatch with the GPUs: 64 on one, 256 on four",
    "`d2lmgpu train --devices 4 --batch-size 64 --scale-batch`, `d2l.train(4, batch_size=64, scale_batch=True)`",
)
def the_minibatch_scales():
    history = trained(4, batch_size=3, scale_batch=True, network=TINY).history
    assert history.batch_size == 12 and [stop - start for start, stop in shard_bounds(12, 4)] == [3] * 4


@guide("scale the learning rate with the minibatch", "`d2lmgpu train --devices 4 --lr 0.05 --scale-batch`")
def the_rate_scales():
    assert trained(4, lr=0.01, scale_batch=True, network=TINY).history.lr == 0.04


@guide(
    "find out how large minibatches and learning rates can be without loss of accuracy",
    "`d2lmgpu sweep --devices 1,2,4 --lr 0.05,0.1,0.2 --scale-batch`, perhaps with `--warmup 1`",
)
def accuracy_by_rate_and_devices():
    trials = d2l.grid(devices=[1, 2], lr=[0.01, 0.02], scale_batch=True, num_epochs=2, warmup=1, network=TINY)
    rows = d2l.sweep(trials, mode="sequential", progress=False)
    assert [row["history"]["lr"] for row in rows] == [0.01, 0.02, 0.02, 0.04]
    d2l.plot_sweep(rows, x="lr", y="best accuracy", by="devices").savefig("sweep.png")


@guide(
    "choose the GPUs to use, in training and prediction",
    '`d2lmgpu train --devices 0,2`, `d2lmgpu predict run.ckpt --devices 0,2`, `d2l.choose_devices("gpu", [0, 2])`',
)
def chosen_devices(cards):
    assert d2l.choose_devices("gpu", [1])[1] == [d2l.gpu(1)]
    history, params = trained([d2l.gpu(1)], network=TINY)
    assert history.devices == ["gpu(1)"]
    X = d2l.load_fashion_mnist()[2][:2]
    with d2l.record_transfers() as transfers:
        d2l.predict(params, X, [d2l.gpu(1)], TINY)
    assert {transfer.destination for transfer in transfers} == {"host", "gpu(1)"}


@guide(
    "leave out a GPU that is slow or drives the screen",
    "`d2lmgpu devices` shows the memory, use and name of each; then `d2lmgpu train --devices 1,2`",
)
def what_devices_are_like(cards):
    row, *_ = d2l.device_table()
    assert row.name == "gpu(0)" and row.memory_total > 0 and row.compute_capability and row.description
    assert "gpu(1)" in command("devices")


guide(
    "a table of the GPUs (`gpuDeviceTable`)",
    "`d2lmgpu devices`, `d2l.device_table()`",
    what_devices_are_like,
)


@guide("how many GPUs there are (`gpuDeviceCount`)", "`d2l.num_gpus()`")
def how_many_gpus(cards):
    assert d2l.num_gpus() == 2 and d2l.can_use_gpu() is True


guide(
    'how many can be used (`gpuDeviceCount("available")`)',
    "`d2l.num_gpus()` counts only these; `d2lmgpu devices --check` says why a GPU does not work",
    how_many_gpus,
)


@guide("a single GPU is the first one unless you choose another", "`d2l.gpu(0)`: devices are counted from 0")
def the_first_is_usual(cards):
    assert d2l.choose_devices("gpu") == ("gpu", [d2l.gpu(0)]) == d2l.choose_devices()


@guide(
    "choose another GPU before training (`gpuDevice(index)`)",
    "`d2l.train([d2l.gpu(1)])`, `d2lmgpu train --devices gpu:1`: you pass devices, since there is no current device",
)
def another_gpu(cards):
    assert trained("gpu:1", network=TINY).history.devices == ["gpu(1)"]


@guide(
    "use two of three GPUs, chosen by number (`useGPUs = [1 3]`)",
    "`d2lmgpu train --environment multi-gpu --devices 0,2`; in any program, `CUDA_VISIBLE_DEVICES=0,2`",
)
def two_of_three(three_cards):
    assert d2l.choose_devices("multi-gpu", "0,2") == ("multi-gpu", [d2l.gpu(0), d2l.gpu(2)])


guide(
    'on one machine, `"parallel"` gives the same result as `"multi-gpu"`',
    "`d2l.train(d2l.cluster(2))` gives the same bits as `d2l.train(2)`",
    a_cluster_is_devices,
)


@guide(
    "divide the work unevenly (`WorkerLoad`); 0 leaves a worker idle",
    "`d2lmgpu train --devices 5 --loads 1,1,1,0,1`, `d2l.split_batch(X, y, devices, loads=[1, 1, 1, 0, 1])`",
)
def loads():
    X = np.zeros((16, 1))
    shards, _ = d2l.split_batch(X, X[:, 0], [d2l.cpu(i) for i in range(5)], loads=[1, 1, 1, 0, 1])
    assert [len(shard) for shard in shards] == [4, 4, 4, 0, 4]
    history = trained(5, loads=[1, 1, 1, 0, 1], network=TINY).history
    assert history.loads == [1, 1, 1, 0, 1] and history.utilisation["cpu(3)"] == 0


SWEEP = {"num_epochs": 1, "batch_size": 24, "network": TINY, "lr": 0.01}


guide(
    "train several networks at the same time, each on its own GPU",
    "`d2lmgpu sweep --lr 0.1,0.2,0.4`, `d2l.sweep(d2l.grid(lr=[0.1, 0.2]))`",
    "test_sweep.py::test_however_it_is_done_a_history_is_that_of_train",
)


guide(
    "a worker for each GPU",
    "`d2lmgpu sweep --lr 0.1,0.2` starts a process for each GPU or each core; "
    "to choose how many: `d2lmgpu sweep --workers 2`",
    "test_sweep.py::test_a_worker_has_a_gpu_of_its_own",
)
guide(
    "a loop with parallel iterations (`parfor`)",
    "`d2l.sweep(trials)`",
    "test_sweep.py::test_however_it_is_done_a_history_is_that_of_train",
)


@guide(
    "train in the background while the program continues (`parfeval`)",
    "`executor.submit(d2l.train, devices)` with `concurrent.futures.ThreadPoolExecutor()`",
)
def in_the_background():
    with ThreadPoolExecutor() as executor:
        settings = SWEEP | {"progress": False}
        runs = [executor.submit(d2l.train, [d2l.cpu(i)], **settings | {"seed": i}) for i in range(2)]
        X = d2l.load_fashion_mnist()[0]  # meanwhile
        assert len(X) == 60
        histories = [run.result().history for run in runs]
    assert [history.devices for history in histories] == [["cpu(0)"], ["cpu(1)"]]
    alone = d2l.train([d2l.cpu(1)], **settings | {"seed": 1}).history
    assert histories[1].final_parameters_sha256 == alone.final_parameters_sha256


guide(
    'train each of these networks on a GPU (`"gpu"` in the options of each worker)',
    '`d2l.grid(environment="gpu", lr=[0.1, 0.2])`, `d2lmgpu sweep --environment gpu --lr 0.1,0.2`',
    "test_sweep.py::test_each_on_all_devices",
)


guide(
    "fast wires between GPUs of a machine (NVLink, peer to peer) are used if there are any",
    "cards write to each other's memory; `d2lmgpu devices --check` says which can",
    "test_checkup.py::test_a_good_machine",
)
guide(
    "GPUs without a direct connection can still work together",
    "copies go through the host: `d2lmgpu devices --check`",
    "test_checkup.py::test_cards_that_do_not_reach_each_other",
)
guide(
    "fast wires between machines (InfiniBand, GPUDirect RDMA), switched on by a variable on all workers",
    "`mpiexec -n 4 d2lmgpu train --environment parallel --allreduce nccl`: NCCL uses what it finds",
    "test_cluster_gpus.py::test_nccl_trains",
)
guide(
    "tell NCCL which network to use (`NCCL_SOCKET_IFNAME`)",
    "not here: NCCL reads its variables itself, from the environment of each process: "
    "[Several machines](cluster.md#several-machines)",
)


guide(
    "pictures in folders (`imageDatastore`)",
    '`d2lmgpu train --data FOLDER`, `d2l.load_image_data("pictures")`',
    "test_image_folders.py::test_pictures_to_train_on_and_to_test",
)


@japanese(
    "the number of a worker within a parallel block (`labindex`), and the number of workers",
    "`cluster.rank` and `cluster.size`, counted from 0",
)
def ranks():
    assert in_each([1, 2], lambda cluster: (cluster.rank, cluster.size, len(cluster))) == [(0, 2, 3), (1, 2, 3)]


@japanese(
    "choose how many local workers there are (`parpool('local', 5)`)",
    "`d2l.train(5)`, `d2lmgpu train --devices 5`: more virtual devices than cores are allowed",
)
def five_workers():
    assert trained(5, network=TINY).history.devices == [f"cpu({i})" for i in range(5)]


@japanese(
    "find out that a worker with load 0 is idle and is better left out",
    "`d2lmgpu train --devices 5 --loads 1,1,1,0,1` names the device that has nothing to do",
)
def an_idle_device_is_named():
    text = command(f"train --devices 3 --loads 1,0,1 {OPTIONS}")
    assert "cpu(1)" in text.split("devices worked")[0]


japanese(
    "find which release supports which GPU",
    "`d2lmgpu devices --check`: [GPUs](gpu.md#installing) says which CUDA each card needs",
    "test_gpu_rules.py::test_a_card_too_old_is_told_what_to_install",
)
