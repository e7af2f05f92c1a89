"""A bit that changes on one device is found, at the step that was asked for, on the right device of the right rank."""

import re
import types
from pathlib import Path

import pytest
from clusters_in_threads import in_each
from conftest import long
from mpiexec import mpiexec
from one_device import NORMED, PLAIN
from training_runs import cpus, quick, random_data

import d2lmgpu as d2l
from d2lmgpu.cli import main
from d2lmgpu.parallel.step import Replica
from d2lmgpu.training import DriftError
from d2lmgpu.training.loop import Run


@pytest.fixture
def flip(monkeypatch):
    """A function: after so many steps flip the last bit of a number of a parameter, or of a statistic, on a device."""

    def flip(is_it, step, array="params", which=-2):
        update = Replica.update

        def update_and_flip(self, *args):
            update(self, *args)
            if self.optimizer.steps == step and is_it(self.device):
                raw = {"params": self.params, "statistics": self.computation.statistics}[array][which].raw
                bits = raw.reshape(-1).view("u4")
                bits[5] = bits[5] ^ 1

        monkeypatch.setattr(Replica, "update", update_and_flip)

    return flip


def train(devices, network=PLAIN, **settings):
    """With 3 steps an epoch."""
    return quick(devices, random_data(network, 60, 10), network=network, batch_size=20, lr=0.05, **settings)


@pytest.mark.parametrize("way", [{}, {"network": NORMED, "batch_statistics": "aggregated"}])
def test_checking_changes_nothing(way):
    whole = train(cpus(3), **way)
    checked = train(cpus(3), check_every=2, **way)
    assert checked.history.final_parameters_sha256 == whole.history.final_parameters_sha256


@pytest.mark.parametrize("every, step, found", [(1, 2, (2, 1)), (2, 2, (2, 1)), (4, 2, (1, 2)), (5, 3, (2, 2))])
def test_a_flipped_bit_is_found_at_the_next_check(every, step, found, flip):
    flip(lambda device: device is d2l.cpu(1), step)
    with pytest.raises(DriftError) as error:
        train(cpus(3), check_every=every)
    where = "after step {} of epoch {} the parameters on cpu(1) differ from those on cpu(0), cpu(2); no ".format(*found)
    assert str(error.value).startswith(where)


def test_nobody_looks_unless_asked(flip):
    flip(lambda device: device is d2l.cpu(1), 2)
    train(cpus(3))
    train(cpus(3), check_every=7)


def test_of_two_it_is_not_known_which_is_right(flip):
    flip(lambda device: device is d2l.cpu(0), 1)
    with pytest.raises(
        DriftError, match=r"on cpu\(1\) differ from those on cpu\(0\) \(which of them is right is not known\)"
    ):
        train(cpus(2), check_every=1)


@pytest.mark.parametrize("statistics, differs", [("local", False), ("aggregated", True)])
def test_statistics_that_should_be_alike(statistics, differs, flip):
    flip(lambda device: device is d2l.cpu(2), 6, "statistics")
    devices = cpus(3)
    way = {"network": NORMED, "batch_statistics": statistics, "check_every": 3}
    if not differs:
        train(devices, **way)
        return
    with pytest.raises(
        DriftError, match=r"after step 3 of epoch 2 the parameters or statistics on cpu\(2\) differ from"
    ):
        train(devices, **way)


@pytest.mark.threads
@pytest.mark.parametrize("split, rank, device", [((1, 1, 1), 2, 0), ((2, 1), 0, 1), *long(((1, 3, 1), 1, 2))])
def test_all_processes_know_who_differs(split, rank, device, flip):
    flip(lambda found: odd and found is odd[0], 3)
    odd = []

    def run(cluster):
        if cluster.rank == rank:
            odd.append(cluster.mine[device])
        with pytest.raises(DriftError) as error:
            train(cluster, check_every=3)
        return str(error.value)

    said = in_each(split, run)
    assert len(set(said)) == 1
    name = f"cpu({device}) of rank {rank} (host{rank})"
    assert said[0].startswith(f"after step 3 of epoch 1 the parameters on {name} differ from those on cpu(0) of rank ")


def test_steps_that_are_launched_together_are_cut_where_somebody_looks():
    def unwatched(before, steps, save_steps=0, check_steps=0, callbacks=()):
        loop = types.SimpleNamespace(runner=types.SimpleNamespace(steps=20), callbacks=callbacks)
        loop.settings = types.SimpleNamespace(check_every=check_steps)
        loop.options = types.SimpleNamespace(checkpoint_steps=save_steps)
        return Run._unwatched(loop, before, steps)

    assert unwatched(20, 3) == 17
    assert unwatched(20, 3, check_steps=7) == 5  # 23 steps of the run were done
    assert unwatched(20, 3, check_steps=7, save_steps=5) == 2
    assert unwatched(20, 18, check_steps=7) == 2
    assert unwatched(0, 0, check_steps=7, callbacks=[None]) == 1


def test_the_command_ends_with_1(flip, capsys):
    flip(lambda device: device is d2l.cpu(1), 2)
    words = "train --devices 3 --limit 60 --batch-size 20 --epochs 1 --check-every 1".split()
    assert main(words) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(
        "d2lmgpu train: error: after step 2 of epoch 1 the parameters on cpu(1) differ from those on cpu(0), "
    )


@pytest.mark.long
@pytest.mark.parametrize("where", [0, 3])
def test_a_flipped_bit_under_mpiexec(where):
    done = mpiexec(4, Path(__file__).parents[1] / "faults_in_training.py", "flip", where, 2, "--check-every", 2)
    others = ", ".join(rf"cpu\(0\) of rank {rank} \(\S+\)" for rank in range(4) if rank != where)
    said = (
        rf"after step 2 of epoch 1 the parameters on cpu\(0\) of rank {where} \(\S+\) differ from those on {others}; no"
    )
    assert done.returncode == 1, done
    assert len(re.findall(said, done.stderr)) == 1, done.stderr
