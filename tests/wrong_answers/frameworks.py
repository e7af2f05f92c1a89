"""Wrong answers to the exercises of notebook 15. A docstring is a part of what the check should say."""

import numpy as np


def to_bfloat16__no_answer(x):
    """it returned nothing. Write to_bfloat16"""


def to_bfloat16__cuts(x):
    """half of the numbers should go up"""
    return (x.view(np.uint32) & 0xFFFF0000).view(np.float32)


def to_bfloat16__half_up(x):
    """ties should go to even"""
    return ((x.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def to_bfloat16__half_down(x):
    """add 0x7FFF, and 1 more if the last kept bit is 1"""
    return ((x.view(np.uint32) + 0x7FFF) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def to_bfloat16__always_up(x):
    """add half a last bit, not a whole"""
    return ((x.view(np.uint32) + 0x10000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def to_bfloat16__float16(x):
    """that is float16"""
    return x.astype(np.float16).astype(np.float32)


def to_bfloat16__bits(x):
    """look at the bits as numbers again"""
    return x.view(np.uint32) & 0xFFFF0000


def to_bfloat16__nothing_done(x):
    """nothing is rounded"""
    return x


def to_bfloat16__in_place(x):
    """make a new array"""
    bits = x.view(np.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    bits &= 0xFFFF0000
    return x


def to_bfloat16__float64(x):
    """in float64"""
    bits = x.view(np.uint32)
    last = (bits >> 16) & 1
    return ((bits + 0x7FFF + last) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(float)


def buckets__no_answer(sizes, limit):
    """it returned nothing. Write buckets"""


def buckets__forward(sizes, limit):
    """backward goes from the last layer to the first"""
    return _packed(range(len(sizes)), sizes, limit)


def buckets__until_it_is_full(sizes, limit):
    """ask whether it still fits"""
    found = [[]]
    for i in reversed(range(len(sizes))):
        if sum(sizes[j] for j in found[-1]) >= limit:
            found.append([])
        found[-1].append(i)
    return found


def buckets__forgets_the_last(sizes, limit):
    """the last bucket, too, has to be sent"""
    return _packed(reversed(range(len(sizes))), sizes, limit)[:-1]


def buckets__one_each(sizes, limit):
    """as long as there is room for it"""
    return [[i] for i in reversed(range(len(sizes)))]


def buckets__sizes(sizes, limit):
    """these are the gradients' sizes"""
    return [[sizes[i] for i in bucket] for bucket in _packed(reversed(range(len(sizes))), sizes, limit)]


def buckets__an_empty_one(sizes, limit):
    """begin a new one only if there is something in it"""
    found = [[]]
    for i in reversed(range(len(sizes))):
        if sum(sizes[j] for j in found[-1]) + sizes[i] > limit:
            found.append([])
        found[-1].append(i)
    return found


def buckets__the_largest_first(sizes, limit):
    """out of order"""
    return _packed(sorted(range(len(sizes)), key=lambda i: (-sizes[i], -i % 3)), sizes, limit)


def buckets__a_flat_list(sizes, limit):
    """each a list of the numbers of parameters"""
    return list(reversed(range(len(sizes))))


def _packed(order, sizes, limit):
    found = []
    for i in order:
        if found and sum(sizes[j] for j in found[-1]) + sizes[i] <= limit:
            found[-1].append(i)
        else:
            found.append([i])
    return found
