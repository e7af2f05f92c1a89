"""Exercises of notebook 7, batch size and learning rate: updates an epoch, the rate of a step, He's weights."""

import math

from .checking import Exercise, expect_number, result_of, with_hidden

EPOCHS = ((60_000, 256, 1), (60_000, 256, 8), (60_000, 250, 4), (1000, 64, 3), (100, 32, 5))
"""Examples, examples of a device's shard, devices: with a ragged rest and without, and less than one minibatch."""


def try_updates_per_epoch(answer):
    """⌈n / kb⌉, also where nothing divides."""
    for n, b, k in with_hidden(EPOCHS, lambda rng: tuple(map(int, rng.integers(1, (10**5, 300, 10))))):
        case = f"updates_per_epoch({n}, {b}, {k})"
        mistakes = (
            (n // (k * b), "the ragged rest gets no update", "the last minibatch may be smaller; round up"),
            (n / (k * b), "a part of an update", "the last minibatch may be smaller; it is an update like the others"),
            (math.ceil(n / b), "as many as on one device", "an update needs a shard of b examples from each device"),
            (n // b, "as many as on one device", "an update needs a shard of b examples from each device"),
            (k * math.ceil(n / b), "more with every device", "all devices together make one update, of k·b examples"),
            (n // (k * b) + 1, "one too many", "where the minibatches divide n, there is no rest"),
        )
        found = result_of(answer, n, b, k, case=case)
        expect_number(found, math.ceil(n / (k * b)), mistakes, case, "how many minibatches of k·b examples are in n?")
    return "k times the minibatch, and one k-th of the updates, the ragged one included."


SCALED, RISE = "linear scaling: k times the minibatch, k times the rate", "step 0 takes the first of the equal parts"


RUNS = ((0.1, 4, 5), (0.05, 8, 0), (0.2, 1, 3), (0.3, 2, 1))
"""One device's rate, devices, steps of warm-up."""


def _draw_run(rng):
    return round(rng.uniform(0.01, 1), 3), int(rng.integers(2, 10)), int(rng.integers(0, 8))


def try_learning_rate(answer):
    """Every step of several runs: the first, those in the warm-up, its last, and later ones."""
    for lr, k, warmup in with_hidden(RUNS, _draw_run):
        for step in (0, 1, 2, 3, 4, 5, 9, 100):
            case = f"learning_rate({step}, {lr}, {k}, {warmup})"
            part = min(1, (step + 1) / warmup) if warmup else 1
            found = result_of(answer, step, lr, k, warmup, case=case, hint=ZERO if not warmup else SCALED)
            expect_number(found, part * k * lr, _rate_mistakes(step, lr, k, warmup), case, f"{SCALED}; {RISE}")
    return "k times the rate, from the warm-up's last step on, and on the way there in equal parts."


ZERO = "warmup_steps may be 0: then there is no warm-up, and nothing to divide by"


def _rate_mistakes(step, lr, k, warmup):
    """Wrong rates of a step: those in the warm-up, or those after it, and then the ones that may be anywhere."""
    full, part = k * lr, (step + 1) / max(1, warmup)
    if step < warmup:
        special = (
            (full, "the full rate from the start", "in the warm-up the rate has not risen all the way"),
            (0, "a step with rate 0 changes nothing", RISE),
            (step / warmup * full, "a step behind", f"{RISE}; warmup_steps - 1 has the full rate"),
            (full * (step + 1) / (warmup + 1), "a step behind", f"{RISE}; warmup_steps - 1 has the full rate"),
            (lr + (full - lr) * step / warmup, "it rises from the rate of one device", GOYAL),
            (lr + (full - lr) * part, "it rises from the rate of one device", GOYAL),
        )
    else:
        part, special = 1, ((part * full, "it goes on rising", "when the warm-up is over, the rate stays"),)
    return (
        *special,
        (part * lr, "one device's rate", SCALED),
        (part * lr / k, "smaller with every device", "a larger minibatch has less noise: it allows larger steps"),
        (part * lr * math.sqrt(k), "scaled by the root of k", SCALED),
    )


GOYAL = "so do Goyal et al.; but here it rises from 0, in equal parts"


SHAPES = ((20, 1, 3, 3), (50, 20, 5, 5), (7, 3, 2, 5), (800, 128), (128, 10))
"""LeNet's weights, and a convolution whose sides all differ."""


def try_he_std(answer):
    """√(2 / inputs of a unit), for convolutions (outputs, inputs, h, w) and dense layers (inputs, outputs)."""
    for shape in with_hidden(SHAPES, lambda rng: tuple(map(int, rng.integers(1, 100, rng.choice((2, 4)))))):
        inputs, outputs = (math.prod(shape[1:]), shape[0]) if len(shape) == 4 else shape
        area = math.prod(shape[2:])
        sizes = (
            (outputs, "counts the outputs", FAN if len(shape) == 4 else ORDER),
            (outputs * area, "counts the outputs", FAN),
            (shape[1], "counts channels only", "a convolution's unit adds up its whole window, of every channel"),
            (area, "counts the window only", "a unit adds up its window in every input channel"),
            (math.prod(shape), "counts all weights", "one unit's inputs: leave out the number of units"),
        )
        mistakes = [(math.sqrt(2 / size), what, hint) for size, what, hint in sizes]
        mistakes += [
            (2 / inputs, "the variance", "the standard deviation is its root"),
            (math.sqrt(1 / inputs), "without the 2", "ReLU sets half of the values to zero; the 2 makes up for it"),
            (math.sqrt(2 / (inputs + outputs * area)), "Glorot's", "He et al. count the inputs only"),
            (0.01, "the textbook's", "it should depend on the shape"),
        ]
        found = result_of(answer, shape, case=f"he_std({shape})")
        expect_number(found, math.sqrt(2 / inputs), mistakes, f"he_std({shape})", "√(2 / inputs of a unit)")
    return "every unit puts out numbers of the size of its inputs."


FAN = "a unit's size follows from how many inputs it adds up"
ORDER = "a dense layer's weight is (inputs, outputs), a convolution's (outputs, inputs, h, w)"

EXERCISES = {
    "updates_per_epoch": Exercise(
        "Write updates_per_epoch(n, b, k): how many updates of the parameters there are in an epoch of n examples on k "
        "devices, each of which gets b examples of a minibatch. A ragged rest is used, too.",
        try_updates_per_epoch,
    ),
    "learning_rate": Exercise(
        "Write learning_rate(step, lr, k, warmup_steps): the rate of a step (from 0) on k devices, by linear scaling, "
        "if lr is the right one for one device. In the first warmup_steps steps it rises from 0 in equal parts, so "
        "that step warmup_steps - 1 is the first with the full rate.",
        try_learning_rate,
    ),
    "he_std": Exercise(
        "Write he_std(shape): the standard deviation of He's initial weights, for the shape of a convolution's weight, "
        "(outputs, inputs, h, w), or of a dense layer's, (inputs, outputs).",
        try_he_std,
    ),
}
