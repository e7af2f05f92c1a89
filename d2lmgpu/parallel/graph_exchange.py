"""An allreduce on GPUs as a part of a step that is recorded: given to all devices' streams by one thread, at once.

As in collectives/execute.py each phase waits for those that the program says; but
the staging buffers are this exchange's own, since a graph keeps nothing alive
that it uses, and nothing is measured or reported.
"""

import numpy as np

from ..collectives import compile_algorithm, needs_staging, schedules_of
from ..collectives.execute import do_action


class GraphExchange:
    """Sums ``flats``, plain flat arrays of one dtype, one on each of the ``devices``, in place."""

    def __init__(self, flats, devices, algorithm):
        self._flats, self.devices = flats, devices
        staging = needs_staging(devices, flats[0].dtype)
        self.program = compile_algorithm(schedules_of(algorithm), len(devices), flats[0].size, staging)
        sizes, dtype = self.program.stage_sizes, np.dtype(flats[0].dtype)
        self._stages = [device.empty(size, dtype) for device, size in zip(devices, sizes, strict=True)]

    def issue(self):
        """Give the devices' streams their parts.

        A device that still reads what the others have finished with need not be waited for: it is written in the next
        step only.
        """
        devices = self.devices
        done = [[record(device)] for device in devices]  # each is there; to be followed by the ends of its phases
        for i, phase in self.program.order:
            with devices[i].as_current():
                for other, count in phase.waits:
                    devices[i].stream.wait_event(done[other][count])
                for action in phase.actions:
                    do_action(action, i, devices, self._flats, self._stages[i], None)
            done[i].append(record(devices[i]))


def record(device):
    """An event at the end of the device's stream so far."""
    with device.as_current():
        return device.stream.record()


def let_wait(device, other):
    """What the stream of ``device`` is given from now on comes after what the other's was given so far."""
    event = record(other)
    with device.as_current():
        device.stream.wait_event(event)
