"""What messages cost on a cluster (benchmarks/messages.py): the fit and networks of hosts by hand, and a run."""

import json
from pathlib import Path

import messages
import numpy as np
import pytest
from messages import Wires, network_of, robust_fit
from mpiexec import mpiexec

import d2lmgpu as d2l
from d2lmgpu.base.measuring import fit
from d2lmgpu.collectives import ALGORITHMS, simulate
from d2lmgpu.collectives.algorithms.hierarchical import hierarchical

pytestmark = pytest.mark.threads

WIRES = Wires(
    1e-3, {"process": 1e-6, "host": 1e-5, "hosts": 1e-4}, {"process": 1e-10, "host": 1e-9, "hosts": 1e-8}, 0.0
)


def fitted(tries, seconds):
    """The startup, α and β of messages that took so long: (bytes, rounds) each."""
    terms = [(1.0, rounds, rounds * nbytes) for nbytes, rounds in tries]
    return robust_fit(terms, seconds)


def test_a_robust_fit_leaves_odd_times_out():
    terms = np.array([(1.0, n) for n in range(1, 10)])
    seconds = terms @ (2.0, 3.0)
    seconds[7:] *= 3
    np.testing.assert_allclose(robust_fit(terms, seconds), (2, 3), rtol=0.01)
    assert abs(fit(terms, seconds)[1] / 3 - 1) > 0.05


def test_a_wire_that_lets_the_first_bytes_pass_at_once_is_not_taken_for_a_faster_one():
    """Seconds that were measured over a wire of 1 Gbit/s, whose first 64 KB after a pause are free."""
    tries = [(nbytes, rounds) for nbytes in (2**12, 2**16, 2**18, 2**20, 2**22) for rounds in (1, 4)]
    seconds = [0.093, 0.146, 0.155, 1.971, 1.928, 8.606, 8.496, 34.951, 35.548, 145.912]
    *_, per_byte = fitted(tries, [1e-3 * each for each in seconds])
    assert per_byte == pytest.approx(8e-9, rel=0.1)


@pytest.mark.parametrize("i, j, level", [(0, 1, "process"), (1, 2, "host"), (3, 4, "hosts"), (7, 0, "hosts")])
def test_a_message_takes_what_its_level_takes(i, j, level):
    network = network_of(WIRES, devices=2, processes=2)(8)
    found = simulate([[d2l.collectives.Transfer(i, j, 0, 250, "copy")]], network).seconds
    assert found == pytest.approx(1e-3 + WIRES.latency[level] + 1000 * WIRES.seconds_per_byte[level])


def test_a_hierarchy_by_hand():
    """Two hosts of a process of two devices: slow wires carry each half once there and once back, in two steps."""
    network = network_of(WIRES, devices=2)(4)
    groups = [[0, 1], [2, 3]]
    within = 1e-6 + 2 * 2000 * 1e-10  # both chunks are copied by one thread
    between = 1e-4 + 2 * 1000 * 1e-8
    found = simulate(hierarchical(4, 1000, groups), network).seconds
    assert found == pytest.approx(1e-3 + 2 * within + 2 * between)
    assert found < simulate(ALGORITHMS["ring"](4, 1000), network).seconds


def test_messages_are_measured():
    program = """
import json, sys, d2lmgpu as d2l
sys.path.append(sys.argv[1])
import messages
messages.REPEATS = 1
cluster = d2l.cluster(2)
wires = messages.measure_wires(cluster, (2**10, 2**14))
if cluster.rank == 1:
    print(json.dumps(wires.as_dict()))
"""
    done = mpiexec(2, "-c", program, Path(messages.__file__).parent)
    assert done.returncode == 0, done.stderr
    wires = json.loads(done.stdout)
    assert list(wires["latency"]) == ["process", "host"] and wires["add_seconds_per_byte"] > 0
    assert min(*wires["latency"].values(), *wires["seconds_per_byte"].values(), wires["startup"]) >= 0
