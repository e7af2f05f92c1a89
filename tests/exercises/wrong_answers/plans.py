"""Wrong answers to the exercises of notebook 12. A docstring is a part of what the check should say."""

import math


def one_f_one_b__gpipe(k, micro_batches):
    """device 0 holds 4 micro-batches at a time; 2 are enough"""
    each = range(micro_batches)
    return [[("F", s, m) for m in each] + [("B", s, m) for m in each] for s in range(k)]


def one_f_one_b__one_after_the_other(k, micro_batches):
    """device s begins with k - s forwards, so that its neighbours also have work"""
    return [[(what, s, m) for m in range(micro_batches) for what in "FB"] for s in range(k)]


def one_f_one_b__ahead_of_the_wrong_end(k, micro_batches):
    """it begins with k - s forwards, more than the device after it"""
    return _pipeline(k, micro_batches, lambda s: s + 1)


def one_f_one_b__forgets_the_last_backwards(k, micro_batches):
    """each device computes the backward of each micro-batch, 0 to 3, once"""
    return [
        [step for step in todo if step[0] == "F" or step[2] < micro_batches - 1] for todo in _good(k, micro_batches)
    ]


def one_f_one_b__all_stages_on_each_device(k, micro_batches):
    """device s computes only stage s"""
    return [[(what, s, m) for m in range(micro_batches) for what in "FB" for s in range(k)] for _ in range(k)]


def one_f_one_b__backward_first(k, micro_batches):
    """a micro-batch's backward comes after its forward"""
    return [todo[::-1] for todo in _good(k, micro_batches)]


def one_f_one_b__another_order_on_one_device(k, micro_batches):
    """all devices take the micro-batches in the same order, both forward and backward"""
    good = _good(k, micro_batches)
    good[-1] = [(what, s, micro_batches - 1 - m) for what, s, m in good[-1]]
    return good


def one_f_one_b__a_flat_list(k, micro_batches):
    """return one list for each device, with tuples (what, stage, micro_batch), such as ('F', 0, 3)"""
    return [step for todo in _good(k, micro_batches) for step in todo]


def enough_micro_batches__rounds_down(k, bubble):
    """round up, not down"""
    return max(1, int((k - 1) * (1 - bubble) / bubble))


def enough_micro_batches__does_not_round(k, bubble):
    """round up to a whole number"""
    return max(1, (k - 1) * (1 - bubble) / bubble)


def enough_micro_batches__counts_the_empty_places(k, bubble):
    """subtract the empty ones"""
    return max(1, math.ceil((k - 1) / bubble))


def enough_micro_batches__none_for_one_device(k, bubble):
    """an undivided minibatch counts as one micro-batch"""
    return math.ceil(round((k - 1) * (1 - bubble) / bubble, 9))


def enough_micro_batches__one_too_many(k, bubble):
    """a bubble of exactly `bubble` is allowed"""
    return int((k - 1) * (1 - bubble) / bubble) + 1


def _good(k, micro_batches):
    return _pipeline(k, micro_batches, lambda s: k - s)


def _pipeline(k, micro_batches, ahead_of):
    devices = []
    for s in range(k):
        ahead = min(ahead_of(s), micro_batches)
        todo = [("F", s, m) for m in range(ahead)]
        for m in range(micro_batches):
            todo.append(("B", s, m))
            if m + ahead < micro_batches:
                todo.append(("F", s, m + ahead))
        devices.append(todo)
    return devices
