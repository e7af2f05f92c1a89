"""Arrays of other libraries are taken wherever NumPy's are, unless they are in a GPU's memory."""

import contextlib
import time

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.base.arguments import as_numpy
from d2lmgpu.data.minibatches import first_examples

TINY = networks.sequential((1, 4, 4), networks.Flatten(), networks.Dense(3))


class ForeignType:
    """A dtype that is none of NumPy's, as PyTorch's."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __repr__(self):
        return f"foreign.{self.dtype}"


class Tensor:
    """A tensor as that of PyTorch: what it is called elsewhere, NumPy's names are not there."""

    def __init__(self, values, device="cpu"):
        self.values, self.device, self.dtype = values, device, ForeignType(values.dtype)

    shape = property(lambda self: self.values.shape)
    ndim = property(lambda self: self.values.ndim)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return type(self)(self.values[index], self.device)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype) if copy else np.asarray(self.values, dtype)


class Column:
    """A column of a table as that of pandas: NumPy's dtype, attributes of others, and rows that have labels."""

    def __init__(self, values):
        self.values, self.dtype, self.shape, self.ndim, self.raw = values, values.dtype, values.shape, values.ndim, 1

    def __len__(self):
        return len(self.values)

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

    def __dlpack__(self, **how):
        return self.values.__dlpack__(**how)

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


def labels(n=7):
    return np.random.default_rng(n).integers(0, 3, n)


def params(network=TINY):
    return d2l.init_params(1, init="he", network=network)


def lenet_images():
    return np.random.default_rng(1).random((3, 1, 28, 28)).astype(np.float32)


def train(of):
    data = [of(part) for part in (images(9), labels(9), images(5), labels(5))]
    result = d2l.train(two(), data=data, batch_size=4, num_epochs=2, init="he", network=TINY, progress=False)
    return result.params, result.history.test_accuracy


def train_batch(of):
    device_params = [d2l.get_params(d2l.init_params(init="he"), device) for device in two()]
    return d2l.train_batch(of(lenet_images()), of(labels(3)), device_params, two(), 0.1), device_params


def update(of):
    values = params()
    d2l.sgd([of(value) for value in values], [of(np.ones_like(value)) for value in values], 0.1, 2)
    return values  # changed in place


def bytes_of(n):
    return (images(n) * 255).astype(np.uint8)


DOORS = {
    "MinibatchQueue": lambda of: d2l.MinibatchQueue(of(images()), of(labels()), two(), 3).next(),
    "confusion_matrix": lambda of: d2l.confusion_matrix(of(labels()), of(labels()[::-1].copy()), 3),
    "conv2d": lambda of: d2l.conv2d(of(images()), of(images(2)[..., :2]), of(np.ones(2, np.float32)))[0],
    "evaluate": lambda of: d2l.evaluate(list(map(of, params())), of(images()), of(labels()), two(), TINY),
    "evaluate device params": lambda of: d2l.evaluate(
        [d2l.get_params(params(), device) for device in two()], of(bytes_of(7)), of(labels()), two(), TINY
    ),
    "first_examples": lambda of: first_examples((of(images(9)), of(np.sort(labels(9))), of(images()), of(labels())), 4),
    "get_params": lambda of: d2l.get_params(list(map(of, params())), d2l.cpu(1)),
    "lenet": lambda of: d2l.lenet(of(lenet_images()), list(map(of, d2l.init_params(init="he")))),
    "loss_and_grads": lambda of: d2l.loss_and_grads(of(images()), of(labels()), list(map(of, params())), TINY),
    "loss_and_grads elsewhere": lambda of: (
        d2l.cpu(1)
        .run(
            d2l.loss_and_grads,
            *(d2l.put(of(part), d2l.cpu(1)) for part in (images(), labels())),
            d2l.get_params(list(map(of, params())), d2l.cpu(1)),
            TINY,
        )
        .result()
    ),
    "minibatches": lambda of: list(d2l.minibatches(of(bytes_of(7)), of(labels()), 3, 1, 2)),
    "predict": lambda of: d2l.predict(list(map(of, params())), of(bytes_of(7)), two(), TINY),
    "put": lambda of: [d2l.put(of(value), d2l.cpu(1)) for value in (images(), labels(), np.array(True))],
    "sgd": update,
    "soft labels": lambda of: d2l.loss_and_grads(of(images()), of(np.eye(3)[labels()]), params(), TINY),
    "split_batch": lambda of: d2l.split_batch(of(images()), of(labels()), two()),
    "to_float": lambda of: d2l.to_float(of(bytes_of(7))),
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", DOORS)
def test_arrays_of_other_libraries(door, kind):
    expected, found = (leaves(DOORS[door](of)) for of in (lambda values: values, KINDS[kind]))
    assert len(expected) == len(found) > 0
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("door", DOORS)
def test_arrays_in_a_gpu_are_not_copied_without_a_word(door):
    for kind in (OnGPU, OnOtherGPU):
        with pytest.raises(
            ValueError, match=r"in a GPU's memory; give a copy on the host, such as x\.cpu\(\)"
        ) as error:
            DOORS[door](kind)
        assert "an array of foreign." in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("door", DOORS)
def test_arrays_that_numpy_cannot_read(door):
    with pytest.raises(
        ValueError, match=r"which NumPy cannot convert; convert it first \(Can't call .* Use detach\(\) first\.\)$"
    ):
        DOORS[door](WithGradient)


def test_arrays_of_cupy_are_not_copied_without_a_word(standin):
    import cupy

    with d2l.gpu(0).as_current():
        x, y = cupy.array(images()), cupy.array(labels())
        for call in (
            lambda: d2l.put(x, d2l.gpu(0)),
            lambda: d2l.put(x, d2l.cpu(0)),
            lambda: d2l.to_host(x),
            lambda: d2l.split_batch(images(), y, two()),
            lambda: d2l.evaluate(params(), x, labels(), two(), TINY),
        ):
            with pytest.raises(ValueError, match=r"a GPU's memory; .*x\.get\(\)"):
                call()


def test_the_memory_stays_the_same():
    X = images()
    for kind in KINDS.values():
        assert np.shares_memory(as_numpy("x", kind(X)), X)


def test_a_virtual_devices_memory_is_not_the_hosts():
    x = d2l.put(images(), d2l.cpu(1))
    for call in (np.from_dlpack, lambda x: x.__dlpack__(), lambda x: x.__dlpack_device__()):
        with pytest.raises(
            d2l.DeviceMismatchError, match=r"DLPack: one array is on the host .* d2l\.to_host\(x\) copies"
        ):
            call(x)
    host = d2l.to_host(x)
    np.testing.assert_array_equal(np.from_dlpack(host), images())
    np.from_dlpack(host).fill(0)  # a copy
    np.testing.assert_array_equal(d2l.to_host(x), images())


def slow_fill(raw, value):
    time.sleep(0.05)
    raw.fill(value)


def test_another_library_reads_a_gpus_memory_after_the_work_before(standin):
    import cupy

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
    with pytest.raises(
        d2l.DeviceMismatchError, match=r"d2l\.to_host\(x\) copies"
    ):  # as np.from_dlpack(x, device="cpu")
        x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    d2l.synchronize([d2l.gpu(0), d2l.gpu(1)])


@pytest.mark.real_gpu
def test_cupy_reads_a_gpus_memory():
    import cupy

    x = d2l.put(images(), d2l.gpu(0))
    x.device.run(slow_fill, x[1:], 7)
    y = cupy.from_dlpack(x)
    np.testing.assert_array_equal(y[1:].get(), np.full((6, 1, 4, 4), 7))
    assert y.data.ptr == x.raw.data.ptr
    with pytest.raises(d2l.DeviceMismatchError):
        np.from_dlpack(x, device="cpu")
