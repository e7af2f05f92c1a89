"""Arrays of other libraries are taken wherever NumPy's are, unless they are in a GPU's memory."""

import contextlib
import time

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.base.foreign import as_numpy
from d2lmgpu.data.minibatches import first_examples

TINY = networks.sequential((1, 4, 4), networks.Flatten(), networks.Dense(3))


class ForeignType:
    """A dtype that is none of NumPy's, as PyTorch's."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __repr__(self):
        return f"foreign.{self.dtype}"


class Array:
    """What arrays of all libraries have."""

    def __init__(self, values):
        self.values, self.shape, self.ndim, self.dtype = values, values.shape, values.ndim, ForeignType(values.dtype)

    def __len__(self):
        return len(self.values)


class Tensor(Array):
    """A tensor as that of PyTorch: what it is called elsewhere, NumPy's names are not there."""

    device = "cpu"

    def __getitem__(self, index):
        return type(self)(self.values[index])

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype) if copy else np.asarray(self.values, dtype)


class Column(Array):
    """A column of a table as that of pandas: NumPy's dtype, attributes of others, and rows that have labels."""

    def __init__(self, values):
        super().__init__(values)
        self.dtype, self.raw = values.dtype, 1

    def __getitem__(self, label):
        return Column(self.values[::-1][label])

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


class Capsule:
    """Something that only speaks DLPack, beside having a shape and a length."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __len__(self):
        return len(self.values)

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class OnGPU(Tensor):
    """A tensor in a GPU's memory, of which NumPy would get a copy without a word, as of JAX's."""

    @property
    def __cuda_array_interface__(self):
        return {}


class OnOtherGPU(Tensor):
    """The same of another maker's GPU, which DLPack knows."""

    def __dlpack_device__(self):
        return 10, 0


class WithGradient(Tensor):
    """A tensor of which NumPy gets nothing, and whose attributes raise errors, as those of PyTorch."""

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get it on a tensor that requires grad.")

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on a tensor that requires grad.\nUse detach() first.")


KINDS = {"tensor": Tensor, "column": Column, "capsule": Capsule, "memoryview": memoryview}


def two():
    return [d2l.cpu(0), d2l.cpu(1)]


def images(n=7):
    return np.random.default_rng(n).random((n, 1, 4, 4)).astype(np.float32)


def bytes_of(n=7):
    return (images(n) * 255).astype(np.uint8)


def labels(n=7):
    return np.random.default_rng(n).integers(0, 3, n)


def params(of, network=TINY):
    return list(map(of, d2l.init_params(1, init="he", network=network)))


def lenet_images():
    return np.random.default_rng(1).random((3, 1, 28, 28)).astype(np.float32)


def train(of):
    data = [of(part) for part in (images(9), labels(9), images(5), labels(5))]
    result = d2l.train(two(), data=data, batch_size=4, num_epochs=2, init="he", network=TINY, progress=False)
    return result.params, result.history.test_accuracy


def train_batch(of):
    device_params = [d2l.get_params(d2l.init_params(init="he"), device) for device in two()]
    return d2l.train_batch(of(lenet_images()), of(labels(3)), device_params, two(), 0.1), device_params


DOORS = {
    "MinibatchQueue": lambda of: d2l.MinibatchQueue(of(images()), of(labels()), two(), 3).next(),
    "confusion_matrix": lambda of: d2l.confusion_matrix(of(labels()), of(labels()[::-1].copy()), 3),
    "evaluate": lambda of: d2l.evaluate(params(of), of(images()), of(labels()), two(), TINY),
    "first_examples": lambda of: first_examples((of(images(9)), of(np.sort(labels(9))), of(images()), of(labels())), 4),
    "lenet": lambda of: d2l.lenet(of(lenet_images()), list(map(of, d2l.init_params(init="he")))),
    "loss_and_grads": lambda of: d2l.loss_and_grads(of(images()), of(labels()), params(of), TINY),
    "minibatches": lambda of: list(d2l.minibatches(of(bytes_of()), of(labels()), 3, 1, 2)),
    "predict": lambda of: d2l.predict(params(of), of(bytes_of()), two(), TINY),
    "put": lambda of: [d2l.put(of(value), d2l.cpu(1)) for value in (images(), labels(), np.array(True))],
    "soft labels": lambda of: d2l.loss_and_grads(of(images()), of(np.eye(3)[labels()]), params(np.asarray), TINY),
    "split_batch": lambda of: d2l.split_batch(of(images()), of(labels()), two()),
    "to_float": lambda of: d2l.to_float(of(bytes_of())),
    "to_host": lambda of: d2l.to_host(of(images())),
    "train": train,
    "train_batch": train_batch,
}


def leaves(value):
    """All numbers in nested lists and tuples, as NumPy arrays."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    assert isinstance(value, (np.ndarray, np.generic, d2l.DeviceArray, int, float))
    return [d2l.to_host(value)]


@pytest.mark.parametrize("door", DOORS)
def test_arrays_of_other_libraries(door):
    """They give what NumPy's give; those of which NumPy would get a copy without a word, or nothing, are refused."""
    expected = leaves(DOORS[door](np.asarray))
    for kind in KINDS.values():
        found = leaves(DOORS[door](kind))
        assert len(expected) == len(found) > 0
        for one, other in zip(expected, found, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    on_gpu = r"an array of foreign\..* in a GPU's memory; give a copy on the host, such as x\.cpu\(\)"
    unread = r"which NumPy cannot convert; convert it first \(Can't call .* Use detach\(\) first\.\)$"
    for kind, message in [(OnGPU, on_gpu), (OnOtherGPU, on_gpu), (WithGradient, unread)]:
        with pytest.raises(ValueError, match=message) as error:
            DOORS[door](kind)
        assert "\n" not in str(error.value)


def test_the_memory_stays_the_same():
    X = images()
    for kind in KINDS.values():
        assert np.shares_memory(as_numpy("x", kind(X)), X)


def slow_fill(raw, value):
    time.sleep(0.02)
    raw.fill(value)


def test_another_library_reads_a_gpus_memory_after_the_work_before(standin):
    """And the host gets copies only where they are asked for."""
    import cupy

    with d2l.gpu(0).as_current():
        x = cupy.array(images())
        for call in (lambda: d2l.put(x, d2l.gpu(0)), lambda: d2l.split_batch(x, labels(), two())):
            with pytest.raises(ValueError, match=r"a GPU's memory; .*x\.get\(\)"):
                call()

    for card in (0, 1):
        x = d2l.put(images(), d2l.gpu(card))
        streams = [contextlib.nullcontext()]  # the null stream, and one of its own
        with cupy.cuda.Device(card):
            streams.append(cupy.cuda.Stream(non_blocking=True))
        for value, stream in enumerate(streams):
            x.device.run(slow_fill, x[1:], value)
            with d2l.record_transfers() as transfers, cupy.cuda.Device(card), stream:
                y = cupy.from_dlpack(x)
                np.testing.assert_array_equal(y[1:].get(), np.full((6, 1, 4, 4), value))
                np.testing.assert_array_equal(y[0].get(), images()[0])
            assert transfers == [] and y.block is x.raw.block
    with pytest.raises(d2l.DeviceMismatchError, match=r"d2l\.to_host\(x\) copies"):
        x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    d2l.synchronize([d2l.gpu(0), d2l.gpu(1)])
