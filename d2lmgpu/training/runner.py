"""What does the steps of a run: the interface that the training loop uses.

    textbook_steps.py   the textbook's step                     whatever needs no plan, on any devices
    plan_step.py        a plan                                  splits, micro-batches, overlap
    graph_step.py       one CUDA graph                          data parallelism on the GPUs of one process

make_runner.py chooses one of them.
"""

from typing import Protocol

from ..monitor import Stop
from .accuracy import TestSet
from .resume import START
from .settings import Settings


class Runner(Protocol):
    """The steps of a run, and its state. On a `Cluster`, each process has one, and all call its methods together.

    - ``settings``: those that it uses, with the loads that were measured
    - ``steps``: the number of steps in an epoch
    - ``peak_memory``: the most bytes on each device, if they are predicted, otherwise None
    - ``stop``: whoever wants the run to end says so there; when any process wants to stop, all learn of it after the
      same step

    For each epoch, call ``start_epoch``, then ``launch`` repeatedly, and finally ``pause``.
    """

    settings: Settings
    steps: int
    peak_memory: list[int] | None
    stop: Stop

    def start_epoch(self, order, rates, position=START):
        """Begin an epoch, or go on with it from a `Position`.

        ``order``: the examples, indices (M,); ``rates``: the learning rate of each step, or of all.
        """

    def launch(self, most) -> list[int]:
        """Begin the next step, or up to ``most`` of them; return how many examples each has."""

    def pause(self) -> tuple[list[float], int]:
        """Wait for all steps so far; return the epoch's summed losses and its number of right answers up to here.

        The losses are a list, as in `Position`, whose sum is the loss.
        """

    def so_far(self) -> tuple[float | None, float | None]:
        """The loss per example and the fraction of right answers in the epoch's steps known to be done, if any."""

    def copies(self) -> list[tuple[list, list]]:
        """Parameters and running statistics on each of this process's devices; just one if a split divides them."""

    def statistics(self) -> list[list]:
        """Batch norm's running means and variances for each device of all processes, on the host."""

    def set_statistics(self, statistics):
        """Set the running statistics of all devices to this one list."""

    def state(self) -> tuple[dict[str, list], int]:
        """What a checkpoint stores: lists of NumPy arrays by name, and how many steps the optimiser has done."""

    def set_state(self, arrays, steps):
        """Restore what `state` returned, also if it was that of another runner."""

    def make_test_set(self, X, y, metrics) -> TestSet:
        """The test set, on the devices on which the run leaves room for it."""

    def check_copies(self, epoch, step):
        """Raise DriftError, in all processes, unless all devices have the same parameters after this step."""

    def close(self):
        """The run is over; whatever the devices are given from now on comes after its steps."""
