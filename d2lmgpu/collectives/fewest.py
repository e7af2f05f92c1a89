"""The all-gather of the fewest steps on a small network, found exactly: that one step fewer is too few is proved.

Each device owns as many chunks as any other. In a step a link carries as many chunks as its bandwidth is times that of
the slowest link, rounded (so where it is no multiple a step takes this link longer, or leaves it idle for a while);
whatever a device passes on it had before the step. Whether so many steps are enough is a question to a solver of linear
programs in whole numbers. There is an unknown for each chunk, pair of wired devices and step: is it sent (1) or not
(0)? These are the rules, of which each may be read as a sentence:

    arrives   each chunk comes to each device that does not own it, once
    had       if a device sends a chunk, it owns it, or it came to it in an earlier step
    carried   no link carries more chunks in a step than it has room for

Steps are counted upwards from what no all-gather can beat: the longest of the shortest ways, and, for each group of
devices, the chunks of others through the links into it. So the answer is the least number: one fewer is below that, or
the solver found that these rules have no solution, as surely as it computes, which it does in floats.

Sources: Cai et al. 2021, "Synthesizing optimal collective algorithms" (SCCL), for steps, chunks and the method, with
another solver (z3, of formulas); Huangfu and Hall 2018, "HiGHS", for the solver, which comes with SciPy.
"""

import dataclasses

import numpy as np

from ..arguments import check_whole, in_a_clone
from ..language.actions import MOST_ELEMENTS, chunk_bounds
from .bounds import Cuts, cuts_of
from .search import Sent, forwards

MOST_DEVICES, MOST_PARTS, MOST_SECONDS = 8, 8, 600
"""So many devices, and chunks of each, since with more the solver may take hours; so long it may try a number of steps.
"""


def fewest_steps(network, n, parts=1):
    """The all-gather of n elements in the fewest steps on a `Network`, of ``parts`` chunks a device: a list of steps.

    A step is a list of `Transfer`. Device i's chunks are equal parts of ``chunk_bounds(n, k)[i]``.

    Raises ValueError for what is no network, one of more than 8 devices, or numbers out of range; ImportError without
    SciPy; TimeoutError if the solver did not find out within ten minutes.
    """
    cuts = cuts_of(network)
    check_whole(f"fewest_steps: the number of devices of {network.name}", cuts.k, most=MOST_DEVICES)
    check_whole("n, the number of elements,", n, least=0, most=MOST_ELEMENTS)
    check_whole("parts, the number of chunks of each device,", parts, most=MOST_PARTS)
    if cuts.k == 1:
        return []
    room = np.maximum(1, np.round(network.bandwidth / network.bandwidth.min()))
    counts = range(_at_least(cuts, room, parts), cuts.k**2 * parts)  # the last are enough for one after the other
    steps = next(filter(None, (_in_steps(cuts, room, parts, count) for count in counts)))
    return forwards(steps, [(a + x, a + y) for a, b in chunk_bounds(n, cuts.k) for x, y in chunk_bounds(b - a, parts)])


def _at_least(cuts, room, parts):
    """Steps: the longest way, or those in which the chunks of others come into a group of devices, for all groups."""
    in_chunks, members = Cuts(dataclasses.replace(cuts.network, bandwidth=room)), np.arange(cuts.k)
    groups = [number >> members & 1 > 0 for number in range(1, 2**cuts.k - 1)]
    coming = [-(-parts * int((~group).sum()) // int(in_chunks.into(group))) for group in groups]
    return max(int(cuts.far(np.ones(len(cuts.sources))).max()), *coming)


def _in_steps(cuts, room, parts, count):
    """Lists of `Sent`, one a step; none if so many steps are too few. Unknowns: chunk by chunk, pair by pair."""
    try:
        from scipy import optimize, sparse
    except ImportError:
        raise ImportError(f"fewest_steps needs a package, SciPy: {in_a_clone('exact')}") from None
    sources, destinations, devices, numbers = cuts.sources, cuts.destinations, np.arange(cuts.k), np.arange(count)
    owners = np.repeat(devices, parts)[:, None]
    chunks, earlier = sparse.eye_array(len(owners)), np.tril(np.ones((count, count)), -1)
    into, feeds = ((ends[:, None] == destinations).astype(float) for ends in (devices, sources))
    uses = (cuts.ways[..., None] == np.arange(len(room))).any(axis=1).T.astype(float)
    arrives = sparse.kron(chunks, sparse.kron(into, np.ones((1, count))))
    had = sparse.kron(chunks, sparse.eye_array(len(sources) * count) - sparse.kron(feeds, earlier))
    carried = sparse.kron(np.ones((1, len(owners))), sparse.kron(uses, np.eye(count)))
    wanted, owned = (owners != devices).ravel(), np.repeat((owners == sources).ravel(), count)
    rules = [(arrives, wanted, wanted), (had, -np.inf, owned), (carried, 0, np.repeat(room, count))]
    is_near = cuts.far(np.ones(len(sources)))[owners, sources][..., None] <= numbers  # it can have come there by then
    may, limit = is_near & (owners != destinations)[..., None], {"time_limit": MOST_SECONDS}
    found = optimize.milp(np.zeros(may.size), integrality=1, bounds=(0, may.ravel()), constraints=rules, options=limit)
    if found.x is None and found.status != 2:  # 2: it has no solution
        raise TimeoutError(f"{cuts.network.name}: {MOST_SECONDS} s do not tell whether {count} steps are enough")
    sent = [] if found.x is None else np.argwhere(found.x.reshape(may.shape) > 0.5).tolist()
    return sent and [[Sent(c, int(sources[p]), int(destinations[p])) for c, p, at in sent if at == i] for i in numbers]
