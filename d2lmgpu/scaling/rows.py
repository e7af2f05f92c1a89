"""From times to speed-up and efficiency.

    speed-up     S(k) = seconds of one device / seconds of k devices, for the same number of examples
    efficiency   E(k) = S(k) / k, the part of the k devices' time that is well spent

In weak scaling k devices do k times the work in a step, so that for the same
number of examples S(k) = k · step time of one / step time of k, and E(k) is
the ratio of the step times.
"""

import statistics
from dataclasses import asdict, dataclass, field


@dataclass
class Row:
    """Training on ``devices`` devices. Seconds are of an epoch unless they say otherwise.

    Of each round there is a time, and a ratio to the same round's time on one
    device; given are the median, the least and the most. ``phases``: the epoch's
    seconds in each phase, of the round in the middle. ``cores``: how many cores' time
    the program was given, the median. ``predicted_seconds_per_epoch``: see
    `predict_scaling`; ``measured_over_predicted`` is the ratio of each round's two times.
    """

    devices: int
    batch_size: int
    seconds_per_epoch: float
    seconds_per_epoch_min: float
    seconds_per_epoch_max: float
    seconds_per_step: float
    speedup: float
    speedup_min: float
    speedup_max: float
    efficiency: float
    efficiency_min: float
    efficiency_max: float
    rounds: int
    cores: float = 0.0
    phases: dict = field(default_factory=dict)
    predicted_seconds_per_epoch: float = None
    measured_over_predicted: float = None
    measured_over_predicted_min: float = None
    measured_over_predicted_max: float = None

    as_dict = asdict

    def enter_prediction(self, predicted, measured):
        """Take the seconds of an epoch that were predicted and measured in each round."""
        ratios = [found / said for said, found in zip(predicted, measured, strict=True)]
        self.predicted_seconds_per_epoch = statistics.median(predicted)
        self.measured_over_predicted = statistics.median(ratios)
        self.measured_over_predicted_min, self.measured_over_predicted_max = min(ratios), max(ratios)


def make_rows(turns, batch_sizes, steps, epoch):
    """A `Row` for each number of devices.

    ``turns``: {devices: its `Turn` of each round}, with 1 among the keys, each of ``steps`` steps
    of ``batch_sizes[devices]`` examples. ``epoch``: the number of examples in an epoch.
    """
    seconds = {k: [turn.seconds / (steps * batch_sizes[k]) * epoch for turn in mine] for k, mine in turns.items()}
    return [_row(k, batch_sizes[k], seconds[k], seconds[1], turns[k], epoch) for k in turns]


def _row(k, batch_size, seconds, alone, turns, epoch):
    ratios = [one / mine for one, mine in zip(alone, seconds, strict=True)]
    middle = sorted(turns, key=lambda turn: turn.seconds)[len(turns) // 2]
    median, speedup = statistics.median(seconds), statistics.median(ratios)
    scale = median / middle.seconds if middle.seconds else 0.0
    return Row(
        devices=k,
        batch_size=batch_size,
        seconds_per_epoch=median,
        seconds_per_epoch_min=min(seconds),
        seconds_per_epoch_max=max(seconds),
        seconds_per_step=median * batch_size / epoch,
        speedup=speedup,
        speedup_min=min(ratios),
        speedup_max=max(ratios),
        efficiency=speedup / k,
        efficiency_min=min(ratios) / k,
        efficiency_max=max(ratios) / k,
        rounds=len(turns),
        cores=statistics.median(turn.cores for turn in turns),
        phases={name: scale * value for name, value in middle.phases.items()},
    )
