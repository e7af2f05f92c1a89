"""What a person is told who gives a wrong argument: one line, with what was given and what is allowed.

A row has calls that are right but for what the message names, the class of the error, and words of the message
(error_tables.py). test_wrong_arguments.py gives wrong values of all kinds to every argument.
"""

import error_tables
import numpy as np
import pytest
from front_doors import TINY, images, labels, on_two, tiny_params, two

import d2lmgpu as d2l
from d2lmgpu import (
    collectives,
    exercises,
    experiments as scaling,
    experiments as sweeps,
    networks,
    parallel,
    plans,
)
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Dropout, Flatten, Layer, ReLU, sequential

ROWS = {
    "base": """
d2l.minibatches(X, y, 2.5, 0, 0) | d2l.minibatches(X, y, 4, True, 0) | d2l.minibatches(X, y, 4, 0, None) | torus(3, 0)
    | MODEL.with_classes(1) | Conv2d(3, 3, stride=1.5) | Conv2d(3, 3, padding=None) | Dense("10") | hypercube(-1)
    | full_switch(0, 1e9) | collectives.invent(torus(3), -1) | plans.PLANS["gpipe"](2, 0) | sweep(workers=0)
    | collectives.measure_allreduce(two, ["ring"], [3]) | plans.prove(PLAN, (1, -1)) | d2l.play(RING, height=0)
    | train(None, num_gpus=True) | train(0) | d2l.cpu(0).limit_memory(1.5) | train(checkpoint="new", checkpoint_steps=0)
    | d2l.MinibatchQueue(X, y, two, 4).shuffle(-1) | sequential((1, 4, -4), Flatten(), Dense(3))
    => ValueError: is … ; it should be a whole number, at least
d2l.minibatches(X, y, 10**10, 0, 0) => ValueError: batch_size is 10000000000 … at most 1,000,000,000
d2l.minibatches(X, y, 4, 2**64, 0) => ValueError: seed is 18446744073709551616 … whole number, at most 18,446,744
d2l.Settings(split="data", micro_batches=10**6) | full_switch(5000, 1e9)
    => ValueError: whole number, at most 4,096
d2l.Settings(lr=10**400) | d2l.Settings(lr=0) | d2l.Settings(lr="1") | d2l.Settings(lr=np.float16(np.inf))
    => ValueError: lr is … ; it should be a finite number, above 0 and at most 1e+06
Dropout(1) | Dropout(-0.1) | Dropout(np.nan) => ValueError: Dropout: p is … a finite number, at least 0 and below 1
d2l.sgd(params, params, 0.1, 0) | d2l.cluster(patience=0) => ValueError: is 0; it should be a finite number, above 0
wired({(0, 1): 1e9}, latency=-1) | wired({(0, 1): -1.0}) | rewired(torus(3), {(0, 1): "slow"})
    | d2l.init_optimizer("sgd", on_two(params), -1) => ValueError: is … it should be a finite number, at least 0
known_network("lenet", width=0.01) | d2l.Settings(width=np.nan) => ValueError: width is … at least 0.05 and at most 100
d2l.Settings(drop_last=2) | d2l.TensorBoard("log", histograms=2) => ValueError: is 2; it should be True or False
d2l.init_params(init="zeros") | d2l.Settings(schedule="linear") | d2l.Settings(precision="tf32") | sweep(mode="both")
    | d2l.Settings(preprocess="flip+") | d2l.Settings(preprocess=["flip"]) | d2l.Settings(batch_statistics="both")
    | d2l.Settings(loss=Foreign) | d2l.Settings(loss=(d2l.squared_error,)) | d2l.Settings(optimizer=Foreign())
    | d2l.Settings(schedule=3) | d2l.Settings(network=[*TINY])
    | plans.prove(PLAN, optimizer="x") | plans.prove(PLAN, dtype="int8") | step(algorithm="star")
    | check_axes("rate", "best accuracy", "devices") | check_axes("lr", "speed", "devices")
    | d2l.choose_devices("tpu") | train(None, environment=np.zeros(2)) => ValueError: is unknown; choose from
d2l.split_batch(X, y, two, sums="exakt") | d2l.Settings(optimizer="adma") | d2l.allreduce([a, b], "rnig")
    | d2l.Settings(loss="mse") | d2l.Settings(split="FSDP") | d2l.Settings(split="layers", pipeline="1f1bb")
    | d2l.choose_devices("gpus") | d2l.cluster().across("rnig") | exercises.check("alreduce", None)
    | sweep([{"lr": 0.1}, {"learning_rate": 1}]) => ValueError: is unknown; choose from … ; did you mean
train(epochs=1) | train(ctx=2) | d2l.Settings(learning_rate=0.1) | d2l.Settings(momentum=0.9)
    => TypeError: there is no argument … ; did you mean
d2l.Settings(network="ResNet18") => ValueError: choose from lenet … ; there are no skip connections
MODEL.export(3) | train(checkpoint=3) | train(keep_best=3) | sweep(results=3) | MODEL.read([3])
    => ValueError: is 3; it should be the name of a file
MODEL.read("none.png") | d2l.load_model("none") | train(resume="none") => FileNotFoundError: No such file … 'none
d2l.split_and_load => AttributeError: no attribute 'split_and_load'; here: d2l.split_batch
""",
    "devices": """
d2l.cpu("0") | d2l.cpu(-1) | d2l.cpu(4096) | d2l.cpu(1.5) | d2l.cpu(True)
    => DeviceError: index is a whole number from 0 to 4,095, not
d2l.choose_devices("parallel") => DeviceError: for commands in processes that mpiexec starts … train on d2l.cluster()
d2l.choose_devices("cpu", []) | d2l.choose_devices("cpu", [0, -2]) => ValueError: ] should be a list of indices
d2l.choose_devices("cpu", [1, 1]) | d2l.choose_devices("auto", ["cpu:1"] * 2) | d2l.cluster([d2l.cpu(1), d2l.cpu(1)])
    | d2l.allreduce([b, b]) => ValueError: 1 … 1 … names a device twice
d2l.choose_devices("gpu", ["cpu:0"]) => ValueError: ['cpu:0'] have their kinds in their names; leave out environment
d2l.choose_devices("auto", ["cpu:0", "1"]) | train(["cuda:0"]) => ValueError: should be a name such as cpu:0
train([d2l.cpu(0), "cpu:1"]) => ValueError: 'cpu:1' is not a device
train([]) => ValueError: the list is empty; at least one device is needed
train([d2l.cpu(0)], environment="gpu") => ValueError: devices are given: [cpu(0)]; leave one
train(2, num_gpus=2) => ValueError: num_gpus and devices are both given; give one of them
d2l.synchronize("cpu") => ValueError: devices 'cpu': give how many, such as 2, or which
d2l.put(X, "cpu") => DeviceError: copies go to a device such as cpu(0), not to 'cpu'
a + X | np.divmod(a, 2, out=(a, X)) => DeviceMismatchError: on cpu(0) and another on the host … d2l.put(x, d2l.cpu(0))
a + b => DeviceMismatchError: add: one array is on cpu(0) and another on cpu(1) … needs all its arrays in one place
a + [1, 2] => DeviceMismatchError: on cpu(0) and a list on the host
np.from_dlpack(a) => DeviceMismatchError: DLPack: one array is on the host … d2l.to_host(x) copies
f"{a:.2f}" => ValueError: size 1
a.get | a.numpy | a.cpu => AttributeError: no ' … d2l.to_host
d2l.cpu(0).wait(5) => TypeError: 5 is no event; allowed is a Task
d2l.cpu(1).run(lambda: a + 1).result() => DeviceError: running on cpu(1) tried to use cpu(0) … issue transfers
d2l.to_host(OnGPU()) => ValueError: torch. … in a GPU's memory; give a copy on the host, such as x.cpu()
""",
    "data": """
d2l.minibatches(X[:0], y[:0], 4, 0, 0) | d2l.MinibatchQueue(X[:0], y[:0], two, 4) | step(X[:0], y[:0])
    | measure_loads(X[:0], y[:0], params, two, 4, TINY) => ValueError: no examples; … needs at least one
train(data=(X[:0], y[:0], X, y)) | MODEL.evaluate(X[:0], y[:0]) => ValueError: 0 images; there should be at least one
d2l.minibatches(X, y[:4], 4, 0, 0) | d2l.MinibatchQueue(X, y[:4], two, 4) | d2l.split_batch(X, y[:4], two)
    | measure_loads(X, y[:4], params, two, 4, TINY) => ValueError: y of shape (4,); each example needs a label
grads(y=y[:4]) | step(y=y[:4]) | train(data=(X, y[:4], X, y)) | train(data=(X, y, X, y[:4])) | MODEL.evaluate(X, y[:4])
    | d2l.softmax_cross_entropy(X[:, 0, 0], y[:4]) | d2l.squared_error(X[:, 0, 0], y[:4]) | EXECUTION.step(X, y[:4], 1)
    | d2l.confusion_matrix(y, y[:4], 3) | sweep(data=(X, y, X, y[:4])) => ValueError: 6 images and 4 labels
grads(y=y - 1) | step(y=y - 1) | train(data=(X, y - 1, X, y)) | train(data=(X, y, X, y - 1)) | MODEL.evaluate(X, y - 1)
    | d2l.softmax_cross_entropy(X[:, 0, 0], y - 1) | d2l.squared_error(X[:, 0, 0], y - 1) | EXECUTION.step(X, y - 1, 1)
    | grads(a, d2l.put(y - 1, two[0]), on_two(params)[0]) | d2l.confusion_matrix(y - 1, y, 3)
    | d2l.MinibatchQueue(X, y - 1, two, 4) => ValueError: labels from -1 to 1; they should be whole numbers from 0
grads(y=y + 1) => ValueError: labels from 1 to 3; … whole numbers from 0 to 2; if they count from 1, give y - 1
grads(y=y[:, None]) => ValueError: labels of shape (6, 1); they should be of shape (6,)
grads(y=y / 2) | grads(y=y > 1) => ValueError: labels of type … they should be whole numbers from 0 to 2
train(data=(X, np.eye(6, 4), X, y)) => ValueError: targets of shape (6, 4); they should be labels … shape (6, 3)
train(data=(X, np.eye(6, 3) * 3 - 1, X, y)) => ValueError: the least is -1, with sums from -3 to 0; for cross_entropy
train(data=(X, np.full((6, 3), np.nan), X, y), loss="squared_error") => ValueError: not all finite
train(data=(X, np.zeros(6), X, y), loss="squared_error", network=ONE) => ValueError: of shape (6, 1): give y[:, None]
train(data=(X, y, X, y, ["a", "b", "b"])) => ValueError: classes are a, b, b; give at least two, with different names
train(data=(X, y, X, y, [*"abcd"])) => ValueError: the network has 3 classes and the data 4
train(data=(X, y, X)) => ValueError: data: 3 parts given; … X_train, y_train, X_test, y_test
train(data=(X.astype(int), y, X, y)) => ValueError: images of type int64; they should be uint8, 0 to 255, or float32
train(data=(X.astype(">f4"), y, X, y)) => ValueError: uint8, 0 to 255, or float32, 0 to 1; give X.astype(np.float32)
train(data=(X.tolist(), y, X, y)) | train(data=(X[:, 0], y, X, y)) | MODEL.predict(X[0]) | MODEL.predict("a.png")
    => ValueError: images is … it should be an array (N, C, H, W)
d2l.split_batch(X, y, two, [1]) | d2l.split_batch(X, y, two, [[1, 2]]) | d2l.split_batch(X, y, two, "ab")
    | train(loads=[1, 2, 3]) | d2l.Settings(loads=[1, 2, 0]).on(two) => ValueError: give 2 numbers, one for each device
d2l.split_batch(X, y, two, [1, -1]) | d2l.split_batch(X, y, two, [0, 0]) | d2l.split_batch(X, y, two, [1, np.nan])
    | d2l.split_batch(X, y, two, [1e308, 1e308]) => ValueError: none below 0 and not all 0, with a finite sum
d2l.MinibatchQueue(X, y, two, 7, drop_last=True) | train(batch_size=7, drop_last=True)
    => ValueError: leaves nothing of 6 examples with batch_size 7; give one of at most 6
d2l.load_image_data("none") => ValueError: none: no such folder … one folder of pictures for each class
d2l.load_image_data(".") => ValueError: should hold two folders, train and test … or MNIST's files
""",
    "layers and networks": """
grads(X.astype(float)) | step(X.astype(float)) => ValueError: X is float64 and the parameters are float32; convert one
grads(X[:, :, 1:]) | MODEL.predict(X[:, :, 1:]) => ValueError: images of shape (1, 3, 4); the network takes (1, 4, 4)
grads(params=params[:1]) | d2l.predict(params[:1], X, two, TINY) | train(init=[]) | step(network=NORM)
    | plans.Execution(PLAN, params[:1], two) => ValueError: there should be a list of … arrays, as from init_params
grads(network="lenet") | step(network="cnn") | d2l.init_params(network="lenet") | d2l.Model(None, [])
    | d2l.Model([*TINY], []) | plans.PLANS["data"](2, 1, network=Network)
    => ValueError: network is … it should be what networks.sequential makes
d2l.Settings(network=NOTHING) | train(network=NOTHING) | grads(network=NOTHING) | step(network=NOTHING)
    | sweep([{"network": NOTHING}]) | plans.PLANS["data"](2, 1, network=NOTHING)
    => ValueError: the network has no parameters, so there is nothing to train
train(network=NO_BACKWARD) => ValueError: layer 2 cannot be trained: its backward function is None
Dense() => ValueError: Dense: missing a required argument: 'outputs'; write Dense(outputs)
Dense(6, 3) => ValueError: Dense: too many positional arguments; write Dense(outputs)
sequential((2, 6, 6), Conv2d(4, 9, padding=1)) => ValueError: layer 1 does not take … (2, 6, 6): … smaller than 9 × 9
sequential((2, 6, 6), Conv2d(4, 3), Dense(3)) => ValueError: layer 2 … (4, 4, 4): Dense takes rows … put Flatten()
sequential((2, 6, 6), Conv2d(4, 3)) => ValueError: the last layer has outputs (4, 4, 4); give one number for each class
sequential((1, 4, 4), ReLU(), Flatten) => ValueError: layer 2 is Flatten, of type function … write Flatten()
sequential((1, 4, 4), Foreign()) | sequential((1, 4, 4), [ReLU(), Flatten()]) | sequential((1, 4, 4), TINY)
    | sequential((1, 4, 4), lambda shape: Layer(max, max, shapes=6)) | sequential((1, 4, 4), lambda shape: 1 / 0)
    => ValueError: layer 1 is … of type … give recipes, one by one, such as Dense(10)
sequential((1, 4, 4), lambda x: x) => ValueError: layer 1 is <lambda> … it makes (1, 4, 4), not a Layer
MODEL.with_classes("ab") => ValueError: 'ab' should be a list of names
d2l.Model(ENDS_IN_RELU, d2l.init_params(network=ENDS_IN_RELU)).with_classes(4)
    => ValueError: last layer is ReLU(); only a Dense layer can be replaced
MODEL.read(None) | MODEL.read(X) => ValueError: should be a list of names of pictures
MODEL.read([]) => ValueError: the list of paths is empty; give at least one picture
MODEL.read(".") => ValueError: . is a folder; give the names of the pictures in it
MODEL.export("a.pt") => ValueError: 'a.pt' should end with .npz or .safetensors
d2l.Model(NO_BACKWARD, d2l.init_params(network=NO_BACKWARD)).export("a.npz") => ValueError: layer 1 has 1 parameters
d2l.Model(TINY, params[:1]) => ValueError: params: … there should be a list of 2 arrays, as from init_params
d2l.Model(NORM, norm_params).export("a.npz")
    => ValueError: statistics: () … there should be a list of 2 arrays, as from init_statistics
d2l.load_model("file") => CheckpointError: is no checkpoint of d2lmgpu
d2l.load_model("model", network=NORM) => CheckpointError: params: … there should be a list of 4 arrays
d2l.load_model("model", network=5) => ValueError: network is 5
restored(None) | restored({"input_shape": [1, 4, 4]}) | restored({"input_shape": [1, 4, 4], "layers": [["max", {}]]})
    | restored({"input_shape": [1, 4, 4], "layers": [["Dense", 10]]}) => ValueError: not a description of a network
""",
    "collectives": """
d2l.allreduce([]) => ValueError: the list of arrays is empty
d2l.allreduce([X, X]) => ValueError: an array of float32 (6, 1, 4, 4) is not on a device; d2l.put(x, device)
d2l.allreduce([a, d2l.put(X[:5], two[1])]) => ValueError: (5, 1, 4, 4) on cpu(1) beside float32 (6, 1, 4, 4) on cpu(0)
d2l.allreduce([a[:, :, :2], b[:, :, :2]]) => ValueError: strided view; pass a contiguous array
d2l.allreduce([a, b], "nccl") | train(algorithm="nccl") | train(algorithm="nccl", split="data")
    => DeviceError: 'nccl' needs at least two GPUs, not [cpu(0), cpu(1)]; 'ring' runs on any
d2l.cluster().across("mpi") | train(algorithm="mpi") => DeviceError: 'mpi' needs several processes … use mpiexec
d2l.allreduce([a, b], lambda k, n: []) => ScheduleError: elements 0 to 96: the share of device 1 is missing
execute_one(0, 2, 0, 5, "add") | d2l.play(RING, k=2) => ScheduleError: step 1: … names a device that is not among 0 … 1
execute_one(0, 1, 0, 97, "add") => ScheduleError: step 1: … is not within the elements 0 … 96
execute_one(0, 1, 0, 5, "max") => ScheduleError: step 1: … should add or copy
collectives.prove(collectives.ring, 3, 6) | d2l.play(collectives.ring) => ValueError: should be a list of steps
collectives.hierarchical(3, 5, [[0, 1], [1, 2]]) | collectives.hierarchical(3, 5, [[0, 1, 2], []])
    => ValueError: should hold each device from 0 to 2 once
collectives.simulate(RING, full_switch(2, 1e9)) => ValueError: more devices than the 2
collectives.simulate(RING, "fast") | collectives.bound("fast", 10) | collectives.invent("fast", 5)
    | plans.simulate(PIPELINE, network="fast") => ValueError: network is 'fast'; give one of collectives.network
full_switch(3, 0) => ValueError: the lowest bandwidth is 0.0; all should be above 0
wired(None) | wired([(0, 1)]) | rewired(torus(3), 5) => ValueError: is … ; it should be a dict of bandwidths by pairs
collectives.ring(2, -1) | collectives.ring(0, 5) => ValueError: there should be at least 0 elements, and a device
plans.PLANS["data"](0, 1) => ValueError: the number of devices is 0; it should be a whole number, at least 1
wired({}) | wired({(0, 1.5): 1e9}) | wired({(0, 1): 1e9, (1, 1): 1e9})
    => ValueError: each wire should join two devices, or a device
wired({(0, 1): 0}) => ValueError: no route leads from device 1 to device 0
wired({(0, 1): 1e9, (2, "s"): 1e9}) => ValueError: no route leads from device 2 to device 0; add wires
read_wires("0-1: 1 GB/s\\n0-1: 25") => ValueError: line 2: '0-1: 25' is no wire … such as '0-1: 25 GB/s'
read_wires("0-1: -3 GB/s") | read_wires("latency: 1..2 us") | read_wires("0-²: 1 GB/s") => ValueError: is no wire
rewired(full_switch(3, 1e9), {(0, 1): 0}) => ValueError: has no wires to change; … such as torus(4, 4)
rewired(torus(3), {(0, 5): 0}) => ValueError: (0, 5) cannot be broken: torus 3 has no such wire
""",
    "parallel": """
step(device_params=on_two(params)[:1]) => ValueError: the parameters: 1 given; it should be a list of 2
step(device_params=on_two(params)[::-1]) | step(optimizer=ADAM[::-1])
    => DeviceMismatchError: train_batch: one array is on cpu(0) and another on cpu(1)
step(algorithm="none") | d2l.Settings(algorithm="none") => ValueError: exchanges nothing, so replicas drift apart
step(optimizer="adam") => ValueError: has a state … optimizer = d2l.init_optimizer('adam', device_params), and
step(optimizer=ADAM[:1]) => ValueError: optimizer: 1 given; it should be a list of 2, of what init_optimizer makes
step(optimizer=[7, 8]) => ValueError: optimizer holds 7; give 'sgd', or what init_optimizer returns
step(draws=7) | step(network=DROPOUT) => ValueError: Draws(seed, epoch, step)
step_with_norm(statistics=[[], []]) => ValueError: the statistics on cpu(0): []; there should be a list of 2 arrays
step_with_norm(statistics=[init_statistics(NORM)] * 2) => DeviceMismatchError: on cpu(0) and another on the host
step_with_norm(sums="exact") | train(sums="exact", network=NORM) => ValueError: sums are exact, but … has batch norm
d2l.init_optimizer("adam", [params] * 2) => ValueError: (16, 3) is not on a device; get_params copies arrays
""",
    "plans": """
plans.PLANS["layers"](2, 1, network=TINY) | train(split="layers") => ValueError: 2 stages for a network with 1 layers
plans.PLANS["channels"](2, network=NORM_FIRST) => ValueError: stage 0: split by columns, it … for each of its outputs
plans.PLANS["channels"](2, network=sequential((1, 4, 4), Dropout(0.5), Flatten(), Dense(3)))
    => ValueError: stage 0: split by columns, it should have … no dropout before
plans.compose([[("F", 0, 0)], [("update", 0, 0)]], 1) => ValueError: device 1: … is not a computation
plans.prove(5) => ValueError: plan is 5; give one, such as PLANS['gpipe']
plans.prove(PLAN, (1, 2, 3)) => ValueError: batch_size: 3 given; it should be a list of 2
plans.simulate(PIPELINE, costs=[{"F": 1}]) | plans.simulate(PIPELINE, costs={"X": 1})
    => ValueError: costs are … give a dict of F, B … or a list of 2, one a stage
plans.simulate(PIPELINE, network=full_switch(1, 1e9)) => ValueError: has 1 devices, and the plan 2
plans.Execution(PLAN, params, two[:1]) => ValueError: is for 2 devices, not 1
EXECUTION.step(X[:, :, 1:], y, 0.1) | EXECUTION.step(X.astype(float), y, 0.1) | EXECUTION.step(X[:0], y[:0], 0.1)
    => ValueError: X is an array of … it should be float32 of shape
plans.draw_splits({}) | plans.draw_splits({"a": PLAN, "b": PIPELINE}) => ValueError: plans; give plans of one network
d2l.Settings(split="data=2") | d2l.Settings(split="layers=2,zero1=2") | d2l.Settings(split="data=0,layers=2")
    => ValueError: is not a product … such as data=2,layers=2
train(split="data=2,layers=2") | train(3, split=PLAN) => ValueError: is for … devices; there are
train(network=NORM, split=PLAN) => ValueError: the plan data is for another network than is trained; give the same
train(split=PLAN, micro_batches=2) | train(split=PLAN, algorithm="tree") | train(split=PLAN, precision="mixed")
    => ValueError: is … which cannot be combined with a plan of your own
""",
    "training": """
d2l.Settings(init="hee") => ValueError: 'hee' is unknown … (there is none of this name); did you mean he?
d2l.Settings(init=3) => ValueError: init is 3; choose from normal, he, or give parameters
train(init=[params[0], np.zeros(9)]) => ValueError: number 1 is an array of float64 (9,) … of shape (3,)
d2l.Settings(warmup=10) => ValueError: warmup is 10 epochs of 10; it should be at least 0 and less than all
d2l.Settings(loads="car") => ValueError: loads are 'car'; give a number for each device … or 'auto'
d2l.Settings(split="data", loads="auto") => ValueError: loads 'auto' work only without a split; give numbers
d2l.Settings(split="zero1", pipeline="gpipe") => ValueError: is for a split over layers, and not for split 'zero1'
d2l.Settings(split="zero3", algorithm="tree") => ValueError: 'tree', but split 'zero3' has its own collectives
d2l.Settings(pipeline="gpipe") | d2l.Settings(micro_batches=2) | d2l.Settings(split="layers", loads=[1, 2])
    | d2l.Settings(split="zero3", overlap=True) | d2l.Settings(split="zero1", flat=False)
    | d2l.Settings(split="data", batch_statistics="aggregated")
    | d2l.Settings(split="zero2", sums="exact") | d2l.Settings(split="zero2", algorithm="nccl")
    | d2l.Settings(overlap=True, flat=False) | d2l.Settings(sums="exact", overlap=True)
    | d2l.Settings(sums="exact", precision="mixed") => ValueError: is … which cannot be combined with … ; leave one out
train(width=2) => ValueError: width is 2, but the network is your own
train(batch_statistics="aggregated") => ValueError: network 'custom' has no batch norm; leave it out, or train another
train(checkpoint="file") => ValueError: file exists; resume from it
train(checkpoint_steps=3) => ValueError: checkpoint_steps is 3, which needs a file; give checkpoint
train(keep_best="file") => ValueError: file exists, and may hold another run's model
train(keep_best="one", checkpoint="one") => ValueError: keep_best one would be written over checkpoint one
train(callbacks=[Foreign()]) => ValueError: Foreign object … is not a Callback; derive its class from
train(loss=(lambda outputs, y: 1.0, max)) => ValueError: forward returned 1.0; it should return the loss and a cache
train(loss=(lambda outputs, y: (np.nan, y), max)) => ValueError: forward returned nan; it should be finite
train(metrics=[max]) => ValueError: metrics are [<built-in … give functions by their names
train(metrics={"a": 3}) | train(metrics={"a": lambda outputs: 1.0}) => ValueError: metric a is … should be a function
train(metrics={3: max}) | train(metrics={"loss": max}) => ValueError: cannot be a metric's name; give a word or two
train(metrics={"a": lambda outputs, y: outputs}) => ValueError: metric a returned an array … it should be a number
train(metrics={"a": lambda outputs, y: 1 / 0}) => ValueError: metric a failed: … division by zero
d2l.evaluate(on_two(params), X, y, d2l.cpu(0), TINY) => ValueError: 2 copies of the parameters for 1 devices
d2l.evaluate(norm_params, X, y, two, NORM) => ValueError: batch norm: give its running means and variances, such as
d2l.evaluate(norm_params, X, y, two, NORM, [1]) => ValueError: statistics: [1]; there should be a list of 2 arrays
d2l.History(["cpu(0)"], "cpu", d2l.Settings().recorded()).momentum => AttributeError: a history has no momentum
d2l.Callback().model() => ValueError: has the model only while train calls it
""",
    "experiments and pictures": """
d2l.grid(devices=[1, 2], lr=[]) => ValueError: the list of lr is empty
sweep([]) => ValueError: there are no trials
sweep([0.1]) => ValueError: trial 1: 0.1 is not a dict
sweep([{"lr": 0.1, "seed": 0}, {"lr": 0.2}, {"lr": 0.1}]) => ValueError: trials 1 and 3 are the same
sweep([{"network": OWN_LAYER}]) => ValueError: trial 1: … layers are your own functions cannot be sent
sweep([{"batch_statistics": "aggregated"}]) => ValueError: trial 1: … network 'lenet' has no batch norm
sweep(workers=2, mode="sequential") => ValueError: executor, workers, mode 'sequential': give one of them
sweep(keep_models="file") => NotADirectoryError: cannot write into … not a folder
d2l.load_sweep("/dev/zero") | d2l.load_sweep("file") => ValueError: not a sweep's results file, or damaged, or of
check_axes("lr", "best accuracy", "lr") => ValueError: x and by are both 'lr'
measure_scaling([d2l.cpu(0)], [1, 2], data=DATA) => ValueError: only 1 were given
d2l.Animator(xlim=[1]) | d2l.Animator(fmts=["zz"]) => ValueError: Animator: matplotlib does not take these arguments
ANIMATOR.add(1, 0.5) => ValueError: 1 numbers y, 1 x; give 2, one for each line
ANIMATOR.add(1, [0.5, "high"]) => ValueError: y has 'high'; it should be a number
d2l.plot_history(5) | d2l.plot_sweep(5) => ValueError: 5 should be a
""",
}


class Foreign:
    """A loss, an optimizer, a callback, … as other libraries have them."""


class OnGPU:
    """An array of another library."""

    __module__ = "torch"

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **options):
        raise RuntimeError("it was copied")


X, y, params = images(), labels(), tiny_params()
DATA = X, y, X, y
NORM = sequential((1, 4, 4), Flatten(), BatchNorm(), Dense(3))
norm_params = d2l.init_params(network=NORM)


def network(*recipes):
    return sequential((1, 4, 4), Flatten(), *recipes)


def grads(X=X, y=y, params=params, network=TINY, **given):
    return d2l.loss_and_grads(X, y, params, network, **given)


def step(X=X, y=y, device_params=None, **given):
    copies = on_two(params) if device_params is None else device_params
    return d2l.train_batch(X, y, copies, two(), 0.1, **{"network": TINY} | given)


def step_with_norm(**given):
    return step(device_params=on_two(norm_params), network=NORM, **given)


def execute_one(*transfer):
    return collectives.execute([[collectives.Transfer(*transfer)]], [d2l.put(X, device) for device in two()])


def train(devices=2, **given):
    settings = {"data": DATA, "network": TINY, "num_epochs": 1, "batch_size": 6, "progress": False}
    return d2l.train(devices, **settings | given)


def sweep(trials=({"network": TINY},), data=DATA, **given):
    return d2l.sweep(trials, data=data, **given)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the calls of the table name, and the folder in which they are."""
    plan = plans.PLANS["data"](2, 1, network=TINY)
    modules = vars(networks) | vars(collectives.network) | vars(parallel) | vars(scaling) | vars(sweeps.plots)
    a, b = (d2l.put(X, device) for device in two())
    made = {"np": np, "exercises": exercises, "a": a, "b": b, "two": two(), "RING": collectives.ring(3, 6)}
    made |= {"PLAN": plan, "PIPELINE": plans.PLANS["gpipe"](2, 2), "EXECUTION": plans.Execution(plan, params, two())}
    made |= {"MODEL": d2l.Model(TINY, params), "ADAM": d2l.init_optimizer("adam", on_two(params))}
    made |= {"NOTHING": network(ReLU()), "ONE": network(Dense(1)), "DROPOUT": network(Dropout(0.5), Dense(3))}
    made |= {"OWN_LAYER": network(lambda shape: ReLU()(shape), Dense(3)), "ENDS_IN_RELU": network(Dense(3), ReLU())}
    made["NO_BACKWARD"] = network(lambda shape: Layer(lambda x, weight: (x @ weight, None), None, ((16, 3),)))
    made["NORM_FIRST"] = sequential((2, 6, 5), BatchNorm(), Conv2d(2, 3), Flatten(), Dense(3))
    made |= {"ANIMATOR": d2l.Animator(legend=["loss", "acc"]), "HERE": tmp_path_factory.mktemp("here")}
    (made["HERE"] / "file").write_text("of something else")
    made["MODEL"].save(made["HERE"] / "model")
    return modules | globals() | made


@pytest.mark.parametrize("calls, said", error_tables.rows(ROWS))
def test_one_line_says_what_is_wrong(calls, said, names, monkeypatch):
    monkeypatch.chdir(names["HERE"])
    kind, words = said.split(": ", 1)
    for call in calls:
        with pytest.raises(Exception) as caught:
            eval(call, names)
        told = f"{caught.typename}: {caught.value}"
        assert error_tables.says(told, f"{kind}: … {words}"), (call, told)
