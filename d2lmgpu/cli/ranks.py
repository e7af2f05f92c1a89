"""``--environment parallel``: one of several processes started by mpiexec or srun; rank 0 prints for all of them."""

import contextlib
import os
import sys
from pathlib import Path

from ..base import signals
from ..base.files import check_folder
from ..base.text import format_metrics, format_seconds, listed
from ..cluster import PATIENCE, NoDeviceError, begin_together, cluster
from ..data.fashion_mnist import DataError
from ..devices import DeviceError, parse_devices
from ..devices.errors import errors_of_cuda
from ..training.monitor import Callback
from .inputs import find_devices, limit_memory
from .options import add_option, add_output, check_files

OUTPUTS = ("json", "plot", "trace", "tensorboard", "confusion")
"""Options that name files; only rank 0 writes them."""


def add_ranks(command):
    """Add the options that only this environment has."""
    add_output(command, "--log", "of several processes: folder for a file of output from each", "DIR", check_folder)
    patience = f"of several processes: seconds that one waits for another (default: {PATIENCE:g})"
    add_option(command, "--patience", float, None, patience)


def errors_told():
    """The classes of errors whose message a command prints, in one line."""
    return ValueError, DeviceError, DataError, OSError, MemoryError, *errors_of_cuda()


def are_together(options):
    """Whether a command line asks for `run_together`, in which only rank 0 checks the files that it names."""
    return "log" in options and options.environment == "parallel"


def check_alone(options):
    """Raise ValueError for options that only this environment has."""
    for name in ("log", "patience"):
        if getattr(options, name, None) not in (None, False):
            raise ValueError(f"--{name} is for several processes; add --environment parallel")


def run_together(options):
    """Run the command on the `Cluster` of all processes, in each of them; return its exit code, or None.

    Rank 0 reports an error that occurs in all processes; an error that occurs only in some ends all processes.
    """
    begin_together()
    group = join(options, PATIENCE if options.patience is None else options.patience)
    if group is None:
        return None
    speaks = group.rank == 0
    try:
        if speaks:
            check_files(options)
        else:
            vars(options).update(dict.fromkeys(OUTPUTS))
        with _redirected(options.log, group):
            return options.command(options, group)
    except (*errors_told(), KeyboardInterrupt) as error:
        group.failed(error)
        if speaks:
            raise
        return signals.exit_code() if isinstance(error, KeyboardInterrupt) else 2


def join(options, patience=PATIENCE):
    """The `Cluster` of all processes, with the devices that were asked for.

    The result is None in a process that has no GPU of its own while others have one: it has nothing to compute.
    """
    asked = 1 if options.devices is None else parse_devices(options.devices)
    if not isinstance(asked, int) or options.environment not in ("auto", "parallel"):
        environment = "auto" if options.environment == "parallel" else None
        return cluster(find_devices(options, environment=environment)[1], patience)
    try:
        group = cluster(asked, patience)
    except NoDeviceError as error:
        print(f"d2lmgpu: {error}", file=sys.stderr)
        return None
    limit_memory(options, group.mine)
    return group


class RankLogger(Callback):
    """Prints how training goes, to the log of a process other than rank 0."""

    def on_epoch(self, history):
        told = f"epoch {len(history.train_loss)}/{history.epochs}: {format_metrics(history.last())}"
        print(f"{told}, {format_seconds(history.seconds_per_epoch[-1])} s", flush=True)


class _Tee:
    """A text stream that also writes to a log."""

    def __init__(self, stream, log):
        self._stream, self._log = stream, log

    def write(self, text):
        self._log.write(text)
        return self._stream.write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@contextlib.contextmanager
def _redirected(folder, group):
    """Within the block, rank 0 prints to the job's output, and each process to its file in ``folder`` (if given).

    Errors always go to the job's output, too.
    """
    path = os.devnull
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        path = Path(folder, f"rank{group.rank}.log")
    with open(path, "w", buffering=1, encoding="utf-8") as log:
        out = _Tee(sys.stdout, log) if group.rank == 0 else log
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(_Tee(sys.stderr, log)):
            if group.rank > 0:
                about = f"rank {group.rank} of {group.size}, process {os.getpid()} on {group.hosts[group.rank]}"
                print(f"{about}: {listed(group.mine)}, of {len(group)} devices")
            yield
