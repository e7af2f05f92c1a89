"""What others call it: names in the textbook, in MATLAB's and TensorFlow's guides and elsewhere, beside those here.

Errors that meet such a name tell the one here, and docs/names.md is made of the same rows.
"""

import functools
import re
from typing import NamedTuple

TABLES = {
    "textbook": """
npx, gluon, autograd, torch, mxnet, nn | | no framework is underneath: there are NumPy, CuPy and functions in d2l
npx.convolution, nn.Conv2D | d2l.conv2d, d2l.networks.Conv2d | a function that returns y and a cache; a layer
npx.pooling, nn.AvgPool2D, nn.MaxPool2D | d2l.avg_pool2d, d2l.max_pool2d, d2l.networks.AvgPool2d
torch.mm, nn.Linear | d2l.dense, d2l.networks.Dense | with the bias
SoftmaxCrossEntropyLoss, CrossEntropyLoss | d2l.softmax_cross_entropy, loss="cross_entropy" | summed over examples
x.copyto, x.as_in_ctx, x.as_in_context, x.to | d2l.put, d2l.get_params | an array; a list of parameters
x.cuda | d2l.put, environment="gpu", --environment gpu | of an array; of a run
x.attach_grad, x.requires_grad_, x.grad, torch.no_grad | d2l.loss_and_grads | returns gradients: arrays have none
x.ctx, x.context | x.device, devices | of an array; of a run
gluon.utils.split_and_load, nn.parallel.scatter | d2l.split_batch | images and labels in one call
autograd.record, l.backward, zero_grad | d2l.loss_and_grads | forward and backward in one call: nothing is recorded
num_gpus, gpus | num_gpus, --devices, d2l.num_gpus, --environment multi-gpu | as an argument; how many there are; all
ctx_list, device_ids | devices, --devices
num_epochs, epochs | num_epochs, --epochs
load_data_fashion_mnist | d2l.load_fashion_mnist, d2l.minibatches | the arrays; an epoch's minibatches of them
train_iter, test_iter, DataLoader | d2l.minibatches, data, --data
evaluate_accuracy_gpu, evaluate_accuracy_gpus, accuracy | d2l.evaluate | on all devices
npx.waitall, x.wait_to_read | d2l.synchronize
x.asnumpy, x.cpu, x.detach | d2l.to_host | a copy as a NumPy array
nn.Sequential | d2l.networks.sequential
resnet18, Residual | | here no layer skips others; the deepest network by name is "deep"
net, model, LeNet5 | network, --network, network="lenet"
init_weights, initialize, initializer | d2l.init_params, init, --init
nn.DataParallel, DistributedDataParallel, DDP | d2l.train, split="data", --split data | several devices do it anyway
gluon.Trainer | d2l.train, d2l.train_batch | a whole run; one step
trainer.step, torch.optim | d2l.sgd, optimizer, --optimizer
learning_rate | lr, --lr | of the mean gradient of a minibatch
Accumulator | | sums are added up in a list
""",
    "matlab": """
trainNetwork, trainnet | d2l.train, d2lmgpu train
trainingOptions | d2l.Settings
ExecutionEnvironment | environment, --environment | auto, cpu, gpu or multi-gpu
MiniBatchSize, batch | batch_size, --batch-size | of all devices together
MaxEpochs | num_epochs, --epochs
InitialLearnRate | lr, --lr
LearnRateSchedule | schedule, --schedule
piecewise | schedule="step", --schedule step
sgdm, momentum | optimizer="momentum", --optimizer momentum | its factor is 0.9
L2Regularization | weight_decay, --weight-decay
WorkerLoad | loads, --loads
Shuffle | seed, --seed | every epoch is shuffled; the seed decides how
Verbose | progress
Plots, trainingProgressMonitor, DataQueue | d2l.LivePlot, d2l.Callback | a notebook shows the plot unasked
ValidationData | data, --data
CheckpointPath | checkpoint, --checkpoint
OutputNetwork | keep_best, --keep-best | the best by the test set; d2l.History.best tells its epoch
gpuDeviceTable | d2l.device_table, d2lmgpu devices
gpuDeviceCount | d2l.num_gpus
canUseGPU, is_available, is_gpu_available | d2l.can_use_gpu
gpuDevice | d2l.gpu, --devices | counted from 0
gpuArray, dlarray | d2l.put
gather, extractdata | d2l.to_host
dlfeval, dlgradient | d2l.loss_and_grads
dlupdate, sgdmupdate, adamupdate | d2l.sgd, optimizer, --optimizer
dlnetwork, layerGraph | d2l.networks.sequential
minibatchqueue | d2l.MinibatchQueue, d2l.minibatches
imageDatastore | d2l.load_image_folder, --data
partition | d2l.split_batch
spmd, parpool | device.run, d2l.cluster | no pool is started: a device has a queue of work; over several processes
spmdIndex, labindex, spmdSize, numlabs | d2l.cluster | of processes; devices are a list
spmdPlus, gplus, spmdReduce, gop | d2l.allreduce
parfor, parfeval, experimentManager | d2l.sweep, d2lmgpu sweep | many networks, each on a device
classify | d2l.predict, d2l.Model.predict, d2lmgpu predict
aggregateState, TrainedMean, TrainedVariance | batch_statistics="aggregated", --batch-statistics aggregated
deterministicAlgorithms | seed, --seed | on as many devices the same seed gives the same bits
FAST_MULTINODE_GPU_COMMUNICATION | algorithm="nccl", --allreduce nccl
""",
    "tensorflow": """
list_physical_devices, list_logical_devices | d2l.device_table, d2l.num_gpus, d2lmgpu devices
set_visible_devices, CUDA_VISIBLE_DEVICES | devices, --devices | which ones, such as 0,2
set_memory_growth, memory_limit | device.limit_memory, --memory-limit | memory is taken as needed; this limits it
MirroredStrategy | d2l.train, split="data", --split data | several devices do it anyway
MultiWorkerMirroredStrategy, TF_CONFIG | d2l.cluster, --environment parallel
ParameterServerStrategy | | here all devices step together: nothing is asynchronous
TPUStrategy, tpu | | devices are NVIDIA's GPUs, and virtual ones on the CPU
strategy.scope | d2l.get_params | a copy of the parameters on each device
strategy.run | device.run
strategy.reduce, all_reduce | d2l.allreduce, algorithm, --allreduce
num_replicas_in_sync, BATCH_SIZE_PER_REPLICA | scale_batch, --scale-batch | batch size and lr times the devices
experimental_distribute_dataset, from_tensor_slices | d2l.split_batch, d2l.minibatches | over devices; of an epoch
cross_device_ops | algorithm, --allreduce
NcclAllReduce | algorithm="nccl", --allreduce nccl
HierarchicalCopyAllReduce | algorithm="hierarchical", --allreduce hierarchical
ReductionToOneDevice | algorithm="naive", --allreduce naive
GradientTape | d2l.loss_and_grads
apply_gradients | d2l.sgd, optimizer, --optimizer
MaxPooling2D | d2l.max_pool2d, d2l.networks.MaxPool2d
model.compile | d2l.Settings | loss, optimizer and metrics are arguments of train
model.fit | d2l.train, d2lmgpu train
sparse_categorical_crossentropy, categorical_crossentropy | loss="cross_entropy", --loss cross_entropy
mse, mean_squared_error | loss="squared_error", --loss squared_error
ModelCheckpoint, save_weights | checkpoint, --checkpoint
save_best_only, restore_best_weights | keep_best, --keep-best
load_weights | d2l.load_model, init, --init | init: to start from them
EarlyStopping | d2l.Callback | its on_epoch ends the run by returning True
LearningRateScheduler | schedule, --schedule
log_dir | d2l.TensorBoard, --tensorboard
AUTOTUNE | prefetch, --no-prefetch | on unless told otherwise
drop_remainder | drop_last, --drop-last
image_dataset_from_directory | d2l.load_image_folder, --data
mixed_float16, mixed_precision, set_policy | precision="mixed", --precision mixed
nvprof, profiler | timeline, --trace
""",
    "elsewhere": """
loss_fn, criterion | loss, --loss
lr_scheduler | schedule, --schedule
float16, fp16, autocast | precision="mixed", --precision mixed
SyncBatchNorm | batch_statistics="synchronised", --batch-statistics synchronised
FullyShardedDataParallel, FSDP | split="zero3", --split zero3
tensor_parallel | split="channels", --split channels
pipeline_parallel | split="layers", --split layers | in the order 1F1B where there are several micro-batches
torchrun, init_process_group | d2l.cluster, --environment parallel
state_dict | d2l.Model.save
load_state_dict, from_pretrained | d2l.load_model, init, --init
manual_seed, random_state | seed, --seed
he_normal, kaiming | init="he", --init he
""",
}
"""By source a table: names elsewhere, what does it here, a few words; where nothing does, the words say why.

What does it is a name in ``d2l``, an attribute of a device array ``x`` or of a ``device``, an argument of `train`,
maybe with its value, an option or a command.
"""


class Name(NamedTuple):
    """A row; names ``elsewhere``, and what does it ``here``, are separated by commas."""

    elsewhere: str
    here: str
    note: str = ""


NAMES = {
    source: [Name(*map(str.strip, row.split("|"))) for row in table.strip().splitlines()]
    for source, table in TABLES.items()
}


def spelled_alike(word):
    """The same for MiniBatchSize, mini_batch_size and --mini-batch-size; of what has dots, the last part."""
    return re.sub("[^a-z0-9]", "", word.rpartition(".")[2].lower())


@functools.cache
def _by_spelling():
    return {spelled_alike(word): row for rows in NAMES.values() for row in rows for word in row.elsewhere.split(", ")}


def name_among(word, known):
    """What is called ``word`` elsewhere, as one of the ``known`` names, maybe with a value; None if none is meant."""
    row = _by_spelling().get(spelled_alike(word), Name(word, ""))
    for way in filter(None, row.here.split(", ")):
        words = re.findall(r"[\w-]+", way)
        if words[0] in known:  # optimizer="momentum" of arguments
            return way
        if words[-1] in known:  # momentum of optimisers
            return words[-1]
    return None


def called_here(word):
    """ "; here: d2l.split_batch (images and labels in one call)": the end of an error; "" for what is no such name."""
    row = _by_spelling().get(spelled_alike(word))
    if row is None:
        return ""
    if not row.here:
        return f"; {row.note}"
    return f"; here: {row.here}" + (f" ({row.note})" if row.note else "")


def no_attribute(said, name):
    """The AttributeError that says so, and what the ``name`` is called here.

    Python adds a name that is only similar, unless it is told that there is none to find.
    """
    here = called_here(name)
    return AttributeError(said + here, **({"name": name, "obj": None} if here else {}))
