"""When processes die, the others go on, and end with the bits of a run in which nobody died.

Most of it needs Open MPI, and is tried at the moments of elastic_deaths.py; benchmarks/elastic.py kills at random.
"""

import functools
import json
import re
import signal
import subprocess
from pathlib import Path

import elastic_deaths
import kills
import pytest
from conftest import few
from mpiexec import command_of, mpiexec

import d2lmgpu as d2l
from d2lmgpu.training import Settings
from d2lmgpu.training.checks import elastic_settings

pytestmark = pytest.mark.threads

LEARNED = "final_parameters_sha256", "train_loss", "train_accuracy", "test_accuracy", "learning_rates"


def tolerant(count, *arguments):
    """The words that run Python by so many processes, which outlive each other. Skips a test where that cannot be."""
    first, *words = command_of(count, *arguments)
    if "Open MPI" not in subprocess.run([first, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("needs Open MPI")
    return [first, "--with-ft", "ulfm", *words]


@functools.cache
def undisturbed(**settings):
    """What one device learns."""
    usual = {"batch_size": 130, "num_epochs": 3, "init": "he", "lr": 0.05, "progress": False, "sums": "exact"}
    history, _ = d2l.train([d2l.cpu(0)], data=elastic_deaths.data(), **usual | settings)
    return {name: getattr(history, name) for name in LEARNED}


def with_deaths(folder, count, deaths, supervised=True, **settings):
    """What those learn that are left, and what is said."""
    file, script = folder / "history.json", Path(elastic_deaths.__file__)
    command = tolerant(count, script, file, json.dumps(deaths), json.dumps(settings))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"d2lmgpu: (.* died; training goes on with .*)", done.stderr)
    killed = re.findall(r"rank (\d) \(\S+\) was killed by signal 9 \(SIGKILL\)\n", done.stderr)
    assert sorted(killed) == (sorted(deaths) if supervised else []), done.stderr
    return json.loads(file.read_text()), said


def goes_on(ranks, devices):
    return f"{ranks} died; training goes on with {devices}"


MOMENTS = {  # who dies when, what is said, and the steps of 9, three an epoch, from which on there are fewer devices
    "nobody": ({}, [], [[0, 4]]),
    "computation": ({"2": ["computation", 3]}, [goes_on("rank 2", "3 devices")], [[0, 4], [4, 3]]),
    "exchange": ({"0": ["exchange", 5]}, [goes_on("rank 0", "3 devices")], [[0, 4], [1, 3]]),
    "vote": ({"1": ["vote", 7]}, [goes_on("rank 1", "3 devices")], [[0, 4], [2, 3]]),
    "last update of an epoch": ({"0": ["update", 2]}, [goes_on("rank 0", "3 devices")], [[0, 4], [3, 3]]),
    "evaluation": (
        {"3": ["evaluation", 1], "0": ["evaluation", 2]},
        [goes_on("rank 3", "3 devices"), goes_on("rank 0", "2 devices")],
        [[0, 4], [6, 3], [6, 2]],
    ),
    "going on": (
        {"1": ["update", 1], "0": ["going on", 0]},
        [goes_on("rank 0, rank 1", "2 devices")],
        [[0, 4], [2, 2]],
    ),
    "shrink": (
        {"1": ["update", 1], "3": ["shrink", 0], "0": ["update", 4]},
        [goes_on("rank 1, rank 3", "2 devices"), goes_on("rank 0", "1 device")],
        [[0, 4], [2, 2], [5, 1]],
    ),
}


@pytest.mark.parametrize("moment", few(MOMENTS, "last update of an epoch", parts=2))
def test_the_bits_are_those_of_a_run_in_which_nobody_died(moment, tmp_path):
    deaths, lines, elastic = MOMENTS[moment]
    history, said = with_deaths(tmp_path, 4, deaths)
    assert {name: history[name] for name in LEARNED} == undisturbed()
    assert said == lines and history["elastic"] == elastic
    left = [rank for rank in range(4) if str(rank) not in deaths]
    assert re.findall(r"rank (\d)", str(history["devices"])) == list(map(str, left))
    assert history["processes"] == len(left)


SETTINGS = {
    "batch norm": {
        "network": "lenet-bn",
        "batch_statistics": "synchronised",
        "optimizer": "adam",
        "lr": 0.002,
        "devices": 2,
    },
    "mixed": {"precision": "mixed", "optimizer": "momentum"},
    "split": {"split": "data", "micro_batches": 2, "preprocess": "flip", "allreduce": "mpi", "check_every": 2},
}


@pytest.mark.parametrize("what", few(SETTINGS, parts=1))
def test_state_and_statistics_go_on(what, tmp_path):
    """Of the optimiser, of batch norm, of mixed precision, of random changes; of several devices in a process."""
    deaths = {"1": ["exchange", 8], "0": ["update", 6]}
    history, _ = with_deaths(tmp_path, 3, deaths, **SETTINGS[what])
    alone = {name: value for name, value in SETTINGS[what].items() if name not in ("devices", "allreduce")}
    if what == "split":  # of one device with as many micro-batches
        alone = {"preprocess": "flip"}
    assert {name: history[name] for name in LEARNED} == undisturbed(**alone)


@pytest.mark.long
def test_gpus_go_on(tmp_path):
    """Of each process one: kernel by kernel, on stand-ins, and none has met a real one."""
    deaths = {"0": ["exchange", 9], "1": ["vote", 7]}
    history, said = with_deaths(tmp_path, 3, deaths, supervised=False, devices=["gpu:0"])  # stand-ins have threads
    assert {name: history[name] for name in LEARNED} == {name: history["alone"][name] for name in LEARNED}
    assert said == [goes_on("rank 0, rank 1", "1 device")] and history["elastic"] == [[0, 3], [1, 1]]
    assert history["phases"]["step"] == 0 < history["phases"]["backward"]  # no graphs


@pytest.mark.long
def test_who_dies_while_it_writes_a_checkpoint(tmp_path):
    """Rank 0; another writes it anew. A run that goes on from it has the same bits, and tells of both."""
    file = tmp_path / "run.ckpt"
    how = {"checkpoint": str(file), "checkpoint_steps": 2}
    history, _ = with_deaths(tmp_path, 3, {"0": ["checkpoint", 3]}, **how, num_epochs=2)
    assert history["elastic"] == [[0, 3], [6, 2]]
    how = {"batch_size": 130, "num_epochs": 3, "init": "he", "lr": 0.05, "progress": False, "sums": "exact"}
    resumed, _ = d2l.train([d2l.cpu(0)], data=elastic_deaths.data(), **how, resume=str(file))
    assert {name: getattr(resumed, name) for name in LEARNED} == undisturbed()
    assert resumed.elastic == history["elastic"]


@pytest.mark.long
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_another_rank_takes_over_what_rank_0_did(how, tmp_path):
    """It prints, and writes the files. A rank that is stopped is killed by its supervisor."""
    files = "--json", tmp_path / "run.json", "--plot", tmp_path / "run.png", "--log", tmp_path / "log"
    words = "train --environment parallel --elastic --limit 1000 --batch-size 200 --epochs 6 --init he --lr 0.05"
    command = tolerant(3, "-m", "d2lmgpu", *words.split(), *files)
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        victim = kills.Killed.process_of(None, job, 0)
        for line in job.stdout:
            lines.append(line.rstrip())
            if line.startswith("epoch 2/6: loss"):
                victim.send_signal(getattr(signal, how))
    assert job.returncode == 0, lines
    told = [line.split(":")[0] for line in lines if re.match(r"epoch \d/6: loss", line)]
    assert told == [f"epoch {n}/6" for n in range(1, 7)]
    assert goes_on("d2lmgpu: rank 0", "2 devices") in lines and any(line.startswith("test acc: ") for line in lines)
    assert any("rank 0 " in line and "no sign of life for 10 s" in line for line in lines) == (how == "SIGSTOP")
    history = json.loads((tmp_path / "run.json").read_text())
    assert history["elastic"][0] == [0, 3] and history["elastic"][-1][1] == 2
    assert len(history["train_loss"]) == 6 and (tmp_path / "run.png").stat().st_size


def end_of(deaths, *words):
    """How a job of three ends that cannot go on, and what is said."""
    command = tolerant(3, elastic_deaths.__file__, "/dev/null", json.dumps(deaths), "{}", *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("moment", ["exchange", "joined"])
def test_a_death_before_training_begins_ends_the_job(moment):
    code, said = end_of({"1": [moment, 0]})
    assert code and re.search(r"rank 1 \(\S+\) was killed by signal 9", said)
    assert re.search("rank [02] .* failed: .*(died|PROC_FAILED).*; the job ends", said)


@pytest.mark.long
@pytest.mark.parametrize("deaths", [{}, {"1": ["update", 2]}, {"1": ["update", 0], "2": ["update", 1]}])
def test_an_error_is_no_death(deaths):
    """It ends the job, also where some have died before, or all others."""
    code, said = end_of(deaths | {"0": ["error", 4]})
    assert code and re.search(r"rank 0 \(\S+\) failed: KeyError: 'bad luck'; the job ends", said)


def test_where_mpi_cannot_the_error_says_what_to_start():
    words = "train --environment parallel --elastic --limit 256 --epochs 1"
    done = mpiexec(2, "-m", "d2lmgpu", *words.split())
    assert done.returncode == 2
    wanted = r"(?m)^d2lmgpu train: error: elastic: .* as in mpiexec --with-ft ulfm -n 4 d2lmgpu train .*; this is "
    here = r"(MPICH [\d.]+|Open MPI [\d.]+, without --with-ft ulfm)$"
    assert len(re.findall(wanted + here, done.stderr)) == 1, done.stderr


class Several:
    size, mine = 2, (d2l.cpu(0),)


@pytest.mark.parametrize("given", [{"split": "zero1"}, {"split": "data=2,layers=2"}, {"loads": [1, 2]}])
def test_what_a_process_cannot_take_over_is_refused(given):
    with pytest.raises(ValueError, match="elastic: each process must have everything"):
        elastic_settings(Settings(**given), Several)


def test_one_process_has_nobody_to_outlive():
    with pytest.raises(ValueError, match="elastic is for several processes"):
        d2l.train([d2l.cpu(0)], data=elastic_deaths.data(), elastic=True)
    settings = elastic_settings(Settings(split="data", overlap=True), Several)
    assert (settings.sums, settings.overlap, settings.prefetch, settings.graphs) == ("exact", False, False, False)
