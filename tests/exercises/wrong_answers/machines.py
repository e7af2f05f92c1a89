"""Wrong answers to the exercises of notebook 14. A docstring is a part of what the check should say."""

from d2lmgpu.collectives import chunk_bounds


def my_examples__split_over_processes(batch_size, counts, rank):
    """a process with two devices takes two parts"""
    return chunk_bounds(batch_size, len(counts))[rank]


def my_examples__of_its_first_device(batch_size, counts, rank):
    """the examples of one device"""
    return chunk_bounds(batch_size, sum(counts))[sum(counts[:rank])]


def my_examples__start_and_length(batch_size, counts, rank):
    """a start and a length"""
    start, stop = _right(batch_size, counts, rank)
    return start, stop - start


def my_examples__last_included(batch_size, counts, rank):
    """stop is not included"""
    start, stop = _right(batch_size, counts, rank)
    return start, stop - 1


def my_examples__drops_the_rest(batch_size, counts, rank):
    """the first n % k devices get one example more"""
    size, first = batch_size // sum(counts), sum(counts[:rank])
    return first * size, (first + counts[rank]) * size


def culprits__who_waits(waits):
    """a rank that waits has answered, so it is not to blame"""
    return sorted(waits)


def culprits__all_that_are_waited_for(waits):
    """some of these wait themselves"""
    return sorted(set(waits.values()))


def culprits__one_only(waits):
    """more than one rank may be silent"""
    return sorted(set(waits.values()) - set(waits))[:1]


def culprits__in_no_order(waits):
    """in order, the lowest rank first"""
    return sorted(set(waits.values()) - set(waits), reverse=True)


def culprits__a_circle(waits):
    """none is to blame: return []"""
    return sorted(set(waits.values()) - set(waits)) or sorted(waits)[:1]


def culprits__a_set(waits):
    """it returned {2}"""
    return set(waits.values()) - set(waits)


def _right(batch_size, counts, rank):
    bounds, first = chunk_bounds(batch_size, sum(counts)), sum(counts[:rank])
    return bounds[first][0], bounds[first + counts[rank] - 1][1]
