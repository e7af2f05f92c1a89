"""What PyTorch (DDP above all) and TensorFlow's own guide to distributed training offer beyond the five documents."""

import numpy as np

import d2lmgpu as d2l

from .article import (
    how_even,
    kinds_of_labels,
    larger_networks,
    memory_on_demand,
    mixed,
    prefetched,
    the_cnn,
)
from .guide import on_a_cluster, prediction_on_several
from .items import TINY, close, items_of, on_one, refused, trained
from .loops import callbacks, metrics, preprocessing

others = items_of("others")

others(
    "a copy of the network on each device, gradients summed (`DistributedDataParallel`, `strategy.run`)",
    "`d2l.train(devices)`, `d2l.train_batch(X, y, device_params, devices, lr)`",
    "test_data_parallel.py::test_k_devices_equal_one",
)
others(
    "several processes and machines (`torchrun`, `init_process_group`, `MultiWorkerMirroredStrategy`)",
    "`mpiexec -n 4 d2lmgpu train --environment parallel`, `d2l.train(d2l.cluster())`",
    on_a_cluster,
)


@others(
    "gradients in buckets, exchanged while others are computed (DDP)",
    "`d2lmgpu train --overlap`; each gradient by itself: `d2lmgpu train --no-flat`",
)
def buckets():
    ways = [trained(2, **how).params for how in ({}, {"overlap": True}, {"flat": False})]
    for params in ways[1:]:
        close(params, ways[0])


others(
    "different examples for each process, in a new order each epoch (`DistributedSampler`)",
    "`d2l.MinibatchQueue(X, y, cluster, 256)`",
    "test_across.py::test_shards_of_a_process",
)
others(
    "minibatches loaded ahead (`DataLoader`, `prefetch`)",
    "this is the default; to switch it off: `d2lmgpu train --no-prefetch`",
    prefetched,
)
others("transforms of the pictures", '`preprocess="flip+shift"`, `preprocess=function`', preprocessing)
others(
    "shards of parameters, gradients and state (FSDP, ZeRO)",
    "`d2lmgpu train --split zero1`, `d2lmgpu train --split zero2`, `d2lmgpu train --split zero3`",
    larger_networks,
)


@others(
    "pipelines (`torch.distributed.pipelining`)",
    "`d2lmgpu train --split layers --pipeline 1f1b --micro-batches 4 --devices 2`, `d2lmgpu plan --split layers`",
)
def pipelines():
    one = on_one(network=TINY)
    for pipeline in ("gpipe", "1f1b", "zero-bubble"):
        result = trained(2, network=TINY, split="layers", pipeline=pipeline, micro_batches=3)
        close(result.params, one.params)


others(
    "networks of layers (`nn.Sequential`, `keras.Sequential`)",
    "`networks.sequential((1, 28, 28), Conv2d(20, 3), ReLU(), Flatten(), Dense(10))`",
    the_cnn,
)


@others(
    "other losses, and your own (`nn.MSELoss`)",
    '`loss="squared_error"`, `d2lmgpu train --loss squared_error`, `loss=(forward, grad)`',
)
def losses():
    def half(outputs, targets):
        difference = outputs - targets
        return (difference**2).sum() / 2, difference

    X, y, X_test, y_test = d2l.load_fashion_mnist()
    targets = [np.eye(10, dtype=np.float32)[labels] for labels in (y, y_test)]
    data = X, targets[0], X_test, targets[1]
    mean = trained(2, network=TINY, loss="squared_error", data=data, lr=0.1)
    own = trained(1, network=TINY, loss=(half, lambda difference: difference), data=data, lr=0.1 / 5)
    close(own.params, mean.params)  # a mean over 10 outputs is a fifth of half of the sum
    wrong = {"loss": (half, lambda difference: -difference), "data": data}
    refused(ValueError, lambda: trained(1, network=TINY, **wrong), "grad")


others("one-hot and soft labels", '`loss="cross_entropy"` takes floats (N, classes)', kinds_of_labels)
others("metrics over all replicas (torchmetrics, `keras.metrics`)", '`d2l.train(metrics={"top 3": function})`', metrics)
others("16 bits, and a scaled loss (`autocast`, `GradScaler`)", "`d2lmgpu train --precision mixed`", mixed)


others(
    "checkpoints, and resuming from one (`CheckpointPath`, `ModelCheckpoint`)",
    "`d2lmgpu train --checkpoint run.ckpt`, `d2lmgpu train --epochs 20 --resume run.ckpt`",
    "test_checkpoints.py::test_a_resumed_run_equals_an_uninterrupted_one",
)


others(
    "the best model of a run (`save_best_only`)",
    '`d2lmgpu train --keep-best best.ckpt`, `d2l.train(keep_best="best.ckpt")`; `history.best`',
    "test_best.py::test_the_best_model_is_kept",
)


others(
    "start from a trained model, with other classes (fine-tuning)",
    "`d2l.train(init=model.with_classes(3))`, `d2lmgpu train --init best.ckpt`",
    "test_start.py::test_another_head",
)


@others(
    "a model as a file, and for other frameworks (`state_dict`, `save_weights`)",
    '`model.save("lenet.model")`, `d2l.load_model("lenet.model")`, `model.export("lenet.npz")`: [PyTorch](pytorch.md)',
)
def models_as_files():
    model = on_one(network=TINY).model
    model.save("tiny.model")
    close(d2l.load_model("tiny.model").params, model.params)
    model.export("tiny.npz")
    with np.load("tiny.npz") as arrays:
        np.testing.assert_array_equal(arrays["4.weight"], model.params[2].T)


others(
    "copies and pickles of parameters and models; arrays from and for other libraries (DLPack)",
    "`copy.deepcopy` and `pickle` work with them: [With other libraries](guide.md#with-other-libraries)",
    "test_pickles.py::test_a_copy_is_made_on_the_device",
)


others("callbacks (`OutputFcn`, `LearningRateScheduler`)", "`d2l.train(callbacks=[callback])`", callbacks)


others(
    "stop when accuracy no longer improves (`EarlyStopping`)",
    "a `d2l.Callback` whose `on_epoch` returns True",
    "test_monitor.py::test_a_callback_ends_training",
)


@others(
    "learning rates that follow a schedule",
    "`d2lmgpu train --schedule cosine`, `schedule=function`; `history.learning_rates`",
)
def rates():
    history = trained(1, network=TINY, num_epochs=4, schedule=lambda part: 1 - part).history
    steps = np.arange(2, 12, 3) / 3 / 4  # of each epoch the last of three
    np.testing.assert_allclose(history.learning_rates, history.lr * (1 - steps))


others("a limit on a device's memory (`memory_limit`)", "`d2lmgpu train --memory-limit 4G`", memory_on_demand)
others("predictions (`model.predict`)", "`d2l.predict(params, X, devices)`", prediction_on_several)
others(
    "pictures in folders (`ImageFolder`, `image_dataset_from_directory`)",
    '`d2lmgpu train --data FOLDER`, `d2l.load_image_data("pictures", (3, 32, 32))`',
    "test_image_folders.py::test_pictures_to_train_on_and_to_test",
)
others(
    "where the time goes (profilers)",
    "`d2lmgpu train --trace trace.json`, `history.phases`",
    "test_cli.py::test_a_trace_of_training",
)
others(
    "a GPU and a CPU in one run",
    "`d2lmgpu train --devices gpu:0,cpu:0 --loads auto`",
    "test_both_kinds.py::test_training",
)
others("how busy each device is", "`history.utilisation`", how_even)


others(
    "weight decay",
    "`d2lmgpu train --weight-decay 0.0005`, `weight_decay=0.0005`",
    "test_optimizers.py::test_weight_decay_in_training",
)
