"""NCCL's rules, which it does not check: what the stand-in says of those who break them, and that the library does not.

Threads, orders, groups and streams; that sums are right is in test_collectives.py and test_cluster_gpus.py.
"""

import time

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import few
from standin_nccl import install_nccl
from standin_streams import RaceError
from test_cluster_gpus import nccl_world
from test_gpu_rules import machine  # noqa: F401
from test_graphs_of_plans import NETWORK, settings

import d2lmgpu as d2l
from d2lmgpu.collectives import add_allreduce, find_algorithm
from d2lmgpu.devices import Batch

pytestmark = pytest.mark.threads


@pytest.fixture
def calls(machine, monkeypatch):  # noqa: F811
    """A machine with two cards; all calls of NCCL."""
    machine(2)
    return install_nccl(monkeypatch)


def gpus(k=2):
    return [d2l.gpu(i) for i in range(k)]


def put_each(values, devices):
    return [d2l.put(value, device) for value, device in zip(values, devices, strict=True)]


def sizes_on_each_card(calls):
    """The elements of each call, in order, on card 0 and on card 1."""
    return [[call.count for call in calls if call.card == card] for card in range(2)]


# What the stand-in holds:


class Ranks:
    """Two cards, arrays on them, and communicators of both, used without the library."""

    def __init__(self, cliques=1):
        from cupy.cuda import nccl

        self.nccl, self.devices = nccl, gpus()
        self.cliques = [nccl.NcclCommunicator.initAll([0, 1]) for _ in range(cliques)]
        self.arrays = {n: put_each([np.ones(n, np.float32)] * 2, self.devices) for n in (3, 4)}
        self.streams = [[device.stream for device in self.devices]]
        self.streams += [[device.comm_stream.stream for device in self.devices]]
        d2l.synchronize(self.devices)

    def call(self, clique, rank, n=3, stream=None):
        raw = self.arrays[n][rank].raw
        stream = stream or self.streams[clique][rank]
        self.cliques[clique][rank].allReduce(raw.data.ptr, raw.data.ptr, n, "float32", "sum", stream.ptr)

    def group(self, *each):
        self.nccl.groupStart()
        for one in each:
            self.call(*one)
        self.nccl.groupEnd()


def test_two_communicators_in_different_orders(calls):
    ranks = Ranks(2)
    here, there = ranks.streams[0]
    ranks.group((0, 0), (1, 0, 4, here), (0, 1), (1, 1, 4, there))
    with pytest.raises(RaceError, match="cards 1 and 0 get the calls of two communicators in different orders"):
        ranks.group((0, 0), (1, 0, 4, here), (1, 1, 4, there), (0, 1))


# What the library does:


def test_devices_and_their_comm_streams_at_once(calls, rng):
    """Both cards get all calls in one order."""
    devices = gpus()
    queues = devices, [device.comm_stream for device in devices]
    values = [rng.normal(size=(2, n)).astype(np.float32) for n in (5, 7)]
    data = [put_each(each, queue) for each, queue in zip(values, queues, strict=True)]
    for number in range(6):
        devices[number % 2].submit(time.sleep, 0.01)
        for arrays in data:
            d2l.allreduce(arrays, "nccl")
    for arrays, each in zip(data, values, strict=True):
        for array in arrays:
            np.testing.assert_allclose(d2l.to_host(array), 2**5 * each.sum(axis=0), rtol=1e-5)
    assert sizes_on_each_card(calls) == [[5, 7] * 6] * 2


def test_a_batch_that_is_given_up_is_not_waited_for(calls):
    """Nor one that is committed later. A prompt, for one, keeps an error's frames, and the batch in them."""
    data = put_each([np.ones(3, np.float32)] * 2, gpus())
    given_up = Batch()
    add_allreduce(given_up, data, find_algorithm("nccl"))
    d2l.allreduce(data, "nccl")
    try:
        assert data[0].device.record().wait(20)
    finally:
        given_up.commit()
    assert [d2l.to_host(array).tolist() for array in data] == [[4] * 3] * 2


@pytest.mark.parametrize("late", [0, 1])
def test_in_processes_too(calls, rng, monkeypatch, late):
    """Where one process's devices are late, and their comm streams are not."""
    values = {n: rng.normal(size=(2, n)).astype(np.float32) for n in (5, 7)}
    join = nccl_world((1, 1), [])

    def run(cluster):
        across, (device,) = join(cluster).across("nccl"), cluster.mine
        data = [d2l.put(values[n][cluster.rank], queue) for n, queue in ((5, device), (7, device.comm_stream))]
        for _ in range(3):
            if cluster.rank == late:
                device.submit(time.sleep, 0.05)
            for array in data:
                d2l.allreduce([array], across)
        return [d2l.to_host(array) for array in data]

    for found in in_each((1, 1), run, kinds=["gpu", "gpu"]):
        for array, n in zip(found, (5, 7), strict=True):
            np.testing.assert_allclose(array, 4 * values[n].sum(axis=0), rtol=1e-5)
    assert sizes_on_each_card(calls) == [[5, 7] * 3] * 2


@pytest.mark.parametrize("where", few(["one process", "processes"], "one process"))
@pytest.mark.parametrize("graphs", few([True, False], False))
def test_training_with_overlap(calls, rng, where, graphs):
    given = settings(rng, NETWORK)
    trained = {**given, "algorithm": "nccl", "overlap": True, "graphs": graphs}
    if where == "one process":
        runs = [d2l.train(gpus(), **trained)]
    else:
        join = nccl_world((1, 1), [])

        def run(cluster):
            join(cluster)
            return d2l.train(cluster, **trained)

        runs = in_each((1, 1), run, kinds=["gpu", "gpu"])
    alone = d2l.train([d2l.cpu(0)], **given)
    for run in runs:
        for one, other in zip(run.params, alone.params, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    here, there = sizes_on_each_card(calls)
    assert here == there and len(here) >= 9
