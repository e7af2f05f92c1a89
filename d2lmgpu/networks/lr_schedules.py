"""Learning rates over time: the warm-up, and the schedule after it.

Large minibatches allow proportionally larger rates (Goyal et al. 2017, "Accurate, Large Minibatch SGD"), but not in the
first steps, when the weights still change a lot. So the rate rises in equal steps during the first epochs.
"""

import math

import numpy as np

from ..base.arguments import check_function, check_name, check_number, is_number, shown

SCHEDULES = {
    "constant": lambda progress: 1.0,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,  # Loshchilov and Hutter 2017, without restarts
    "step": lambda progress: 1.0 if progress < 0.5 else 0.1,
}
"""The factor of the rate as a function of progress, which goes from 0 to 1 in the epochs after the warm-up.

"step" divides the rate by ten halfway through.
"""


def learning_rates(lr, epoch, steps, num_epochs, warmup=0, schedule="constant"):
    """The learning rate of each of the ``steps`` of an ``epoch`` (from 0) of ``num_epochs``: an array (steps,).

    ``warmup``: the epochs, not necessarily whole, over which the rate rises linearly to ``lr``. ``schedule``: a name in
    `SCHEDULES`, or a function like those there.

    Raises ValueError for an unknown schedule or one that does not return a number, and for a warm-up that is negative
    or takes up all epochs.
    """
    if callable(schedule):
        check_function("schedule", schedule, "progress")
    else:
        check_name("schedule", schedule, SCHEDULES, also=", or give a function")
    factor = SCHEDULES.get(schedule, schedule)
    if not is_number(warmup) or not 0 <= warmup < num_epochs:
        raise ValueError(f"warmup is {shown(warmup)} epochs of {num_epochs}; it should be at least 0 and less than all")
    rates = np.empty(steps)
    for step in range(steps):
        done = epoch + step / steps  # epochs so far
        if done < warmup:
            rates[step] = lr * (done + 1 / steps) / warmup if done + 1 / steps < warmup else lr
        else:
            part = factor((done - warmup) / (num_epochs - warmup))
            part = check_number("schedule: what the function returned", part)
            rates[step] = lr * part
    return rates
