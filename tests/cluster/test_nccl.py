"""NCCL: its rules, which it does not check, and that the library keeps them; sums and runs in one process and several.

Threads, orders, groups and streams: what the stand-in says of those who break them is in its first lines.
"""

import re
import time
import types

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import few, long
from gpus import assert_as, gpus, machine, small_data, train  # noqa: F401
from mpi_in_threads import comms
from standin_nccl import install_nccl
from standin_streams import RaceError

import d2lmgpu as d2l
from d2lmgpu.collectives import add_allreduce, find_algorithm
from d2lmgpu.devices import Batch

pytestmark = pytest.mark.threads


@pytest.fixture
def calls(machine, monkeypatch):  # noqa: F811
    """A machine with three cards, without kernels; all calls of NCCL."""
    machine(3)
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    return install_nccl(monkeypatch)


def put_each(values, devices):
    return [d2l.put(value, device) for value, device in zip(values, devices, strict=True)]


def counts_on(calls, card):
    """The elements of each call on a card, in order."""
    return [call.count for call in calls if call.card == card]


def nccl_world(splits):
    """What a cluster in threads lacks for NCCL, a communicator of all, and a watch: a function that adds it."""
    worlds = comms(len(splits))

    def join(cluster):
        cluster.world = worlds[cluster.rank]
        cluster.watch = types.SimpleNamespace(heard=[0.0] * len(splits), communicators=[])
        return cluster

    return join


def test_the_standin_knows_cards_that_get_calls_in_different_orders(calls):
    from cupy.cuda import nccl

    devices = gpus()
    raws = [array.raw for array in put_each([np.ones(3, np.float32)] * 2, devices)]
    cliques = [nccl.NcclCommunicator.initAll([0, 1]) for _ in range(2)]
    d2l.synchronize(devices)

    def group(*order):
        nccl.groupStart()
        for clique, rank in order:
            pointer, stream = raws[rank].data.ptr, devices[rank].stream.ptr
            cliques[clique][rank].allReduce(pointer, pointer, 3, "float32", "sum", stream)
        nccl.groupEnd()

    group((0, 0), (1, 0), (0, 1), (1, 1))
    with pytest.raises(RaceError, match="cards 1 and 0 get the calls of two communicators in different orders"):
        group((0, 0), (1, 0), (1, 1), (0, 1))


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
    assert counts_on(calls, 0) == counts_on(calls, 1) == [5, 7] * 6


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


@pytest.mark.parametrize("splits, late", [((2, 1), 1), *long(((1, 1), 0), ((1, 1, 1), 2))])
def test_sums_over_processes(calls, rng, splits, late):
    """Where one process's devices are late, and their comm streams are not. A process's calls are a group."""
    values = {n: rng.normal(size=(sum(splits), n)).astype(np.float32) for n in (5, 7)}
    join = nccl_world(splits)

    def run(cluster):
        across = join(cluster).across("nccl")
        with pytest.raises(ValueError, match="nccl': int32 is not among float16, float32, float64, int64"):
            d2l.allreduce([d2l.put(np.arange(3, dtype=np.int32), device) for device in cluster.mine], across)
        queues = {5: cluster.mine, 7: [device.comm_stream for device in cluster.mine]}
        data = {n: put_each(cluster.part(list(values[n])), queue) for n, queue in queues.items()}
        for _ in range(2):
            if cluster.rank == late:
                cluster.mine[0].submit(time.sleep, 0.05)
            for arrays in data.values():
                d2l.allreduce(arrays, across)
        assert len(cluster.watch.communicators) >= 1
        return [(n, d2l.to_host(array)) for n, arrays in data.items() for array in arrays]

    for mine in in_each(splits, run, kinds=["gpu"] * len(splits)):
        for n, array in mine:
            np.testing.assert_allclose(array, sum(splits) * values[n].sum(axis=0), rtol=1e-5)
    for card in range(sum(splits)):
        assert counts_on(calls, card) == [5, 7] * 2
    ends = np.cumsum(splits).tolist()
    for end, count in zip(ends, splits, strict=True):
        groups = [call.group for call in calls if call.card in range(end - count, end)]
        assert len(set(groups)) == 4, "a process's calls are a group"


WAYS = [("processes", {}), ("one process", {"overlap": True}), ("processes", {"overlap": True})]


@pytest.mark.parametrize("where, way", few(WAYS, *WAYS[:2]))
def test_training(calls, rng, where, way):
    data = small_data(rng)
    if where == "one process":
        runs = [train(gpus(), data, algorithm="nccl", **way)]
    else:
        join = nccl_world((1, 1))
        runs = in_each((1, 1), lambda cluster: train(join(cluster), data, algorithm="nccl", **way), kinds=["gpu"] * 2)
    alone = train([d2l.cpu(0)], data)
    for run in runs:
        assert_as(run, alone)
    assert counts_on(calls, 0) == counts_on(calls, 1) and len(counts_on(calls, 0)) >= 6


def test_who_waits_in_nccl_says_so(calls):
    """What the process's watch sees while the other does not come."""
    watches, seen, wanted = [], set(), "NCCL's allReduce"
    join = nccl_world((1, 1))

    def run(cluster):
        across = join(cluster).across("nccl")
        watches.append(cluster.watch)
        data = [d2l.put(np.ones(3, np.float32), cluster.mine[0])]
        end = time.monotonic() + 30
        while cluster.rank == 1 and wanted not in seen and time.monotonic() < end:
            waits = [communicator.waits for watch in watches for communicator in watch.communicators]
            seen.update(waiting.what for each in waits for waiting in each)
            time.sleep(0.001)
        d2l.allreduce(data, across)

    in_each((1, 1), run, kinds=["gpu", "gpu"])
    assert wanted in seen and seen <= {wanted, "ncclCommInitRank"}


@pytest.mark.parametrize(
    "kinds, cards, broken, message",
    [
        (["gpu", "cpu"], 1, [], re.escape("but there is cpu(0) of rank 1 (host1); use 'ring' or 'mpi'")),
        # two containers' names
        (["gpu", "gpu"], 1, [], r"but gpu\(0\) of rank 0 \(host0\), gpu\(0\) of rank 1 \(host1\) share cards"),
        (["gpu", "gpu"], 2, ["ncclGetUniqueId"], "NCCL_ERROR_UNHANDLED_CUDA_ERROR: .* 'ring' needs no NCCL .rank 0."),
    ],
)
def test_what_nccl_needs_or_says_is_raised_in_all_processes(machine, monkeypatch, kinds, cards, broken, message):  # noqa: F811
    machine(cards, broken=broken)
    install_nccl(monkeypatch)
    join = nccl_world((1, 1))

    def run(cluster):
        with pytest.raises(d2l.DeviceError, match=message):
            join(cluster).across("nccl")

    in_each((1, 1), run, kinds=kinds)
