"""The all-gather with the fewest steps on a small network, with a proof that one step fewer is not enough.

Every device owns the same number of chunks. In one step, a link can carry a number of chunks in proportion to its
bandwidth: the slowest link carries one, and any other link as many as the ratio of the bandwidths, rounded (where the
ratio is not a whole number, the step takes longer on this link or leaves it idle for a while). A device passes on only
what it had before the step. An integer linear programming solver decides whether a given number of steps is enough.
There is an unknown for each chunk, each pair of wired devices and each step: is the chunk sent (1) or not (0)? The
rules are:

    arrives   each chunk arrives exactly once at each device that does not own it
    had       a device sends a chunk only if it owns it or received it in an earlier step
    carried   no link carries more chunks in a step than it has room for

We start from a number of steps that no all-gather can beat and count upwards. This bound is the length of the longest
of the shortest routes, or the most steps that any group of devices needs to receive its missing chunks over its links,
whichever is more. So the answer is the least number of steps: one step fewer is either below the bound, or the solver
has found that it is not enough (as reliably as floating-point numbers allow).

Sources: Cai et al. 2021, "Synthesizing optimal collective algorithms" (SCCL), for steps, chunks and the method, though
with another solver (z3, for logical formulas); Huangfu and Hall 2018, "HiGHS", for the solver used here, which comes
with SciPy.
"""

import dataclasses

import numpy as np

from ..arguments import check_whole
from ..devices.packages import needed
from ..language.actions import MOST_ELEMENTS, chunk_bounds
from .bounds import Cuts, cuts_of
from .search import Sent, forwards

MOST_DEVICES, MOST_PARTS, MOST_SECONDS = 8, 8, 600
"""The most devices and chunks per device (more might take hours), and the most seconds of the solver per attempt."""


def fewest_steps(network, n, parts=1):
    """The all-gather of n elements in the fewest steps on a `Network`, a list of steps.

    A step is a list of `Transfer` objects. Each device owns ``parts`` chunks; those of device i are equal parts of
    ``chunk_bounds(n, k)[i]``.

    Raises ValueError for anything but a network of at most 8 devices, or for numbers out of range; PackageError
    without SciPy; TimeoutError if the solver finds no answer within ten minutes.
    """
    cuts = cuts_of(network)
    check_whole(f"fewest_steps: the number of devices of {network.name}", cuts.k, most=MOST_DEVICES)
    n = check_whole("n, the number of elements,", n, least=0, most=MOST_ELEMENTS)
    parts = check_whole("parts, the number of chunks of each device,", parts, most=MOST_PARTS)
    if cuts.k == 1:
        return []
    room = np.maximum(1, np.round(network.bandwidth / network.bandwidth.min()))
    counts = range(_at_least(cuts, room, parts), cuts.k**2 * parts)  # the last is enough for one chunk after another
    steps = next(filter(None, (_in_steps(cuts, room, parts, count) for count in counts)))
    return forwards(steps, [(a + x, a + y) for a, b in chunk_bounds(n, cuts.k) for x, y in chunk_bounds(b - a, parts)])


def _at_least(cuts, room, parts):
    """A lower bound: the steps for the longest of the shortest routes, or for a group to receive what it lacks."""
    in_chunks, members = Cuts(dataclasses.replace(cuts.network, bandwidth=room)), np.arange(cuts.k)
    groups = [number >> members & 1 > 0 for number in range(1, 2**cuts.k - 1)]
    coming = [-(-parts * int((~group).sum()) // int(in_chunks.into(group))) for group in groups]
    return max(int(cuts.far(np.ones(len(cuts.sources))).max()), *coming)


def _in_steps(cuts, room, parts, count):
    """A list of `Sent` for each step; empty if ``count`` steps are too few. The unknowns go by chunk, pair and step."""
    optimize = needed("scipy.optimize", "fewest_steps needs a package, SciPy", "exact")
    from scipy import sparse

    sources, destinations, devices, numbers = cuts.sources, cuts.destinations, np.arange(cuts.k), np.arange(count)
    owners = np.repeat(devices, parts)[:, None]
    chunks, earlier = sparse.eye_array(len(owners)), np.tril(np.ones((count, count)), -1)
    into, feeds = (sparse.coo_array((ends[:, None] == destinations).astype(float)) for ends in (devices, sources))
    uses = sparse.coo_array((cuts.ways[..., None] == np.arange(len(room))).any(axis=1).T.astype(float))
    arrives = sparse.kron(chunks, sparse.kron(into, np.ones((1, count))))
    had = sparse.kron(chunks, sparse.eye_array(len(sources) * count) - sparse.kron(feeds, earlier))
    carried = sparse.kron(sparse.coo_array(np.ones((1, len(owners)))), sparse.kron(uses, np.eye(count)))
    wanted, owned = (owners != devices).ravel(), np.repeat((owners == sources).ravel(), count)
    rules = [(arrives, wanted, wanted), (had, -np.inf, owned), (carried, 0, np.repeat(room, count))]
    is_near = cuts.far(np.ones(len(sources)))[owners, sources][..., None] <= numbers  # the chunk can be there by then
    may, limit = is_near & (owners != destinations)[..., None], {"time_limit": MOST_SECONDS}
    found = optimize.milp(np.zeros(may.size), integrality=1, bounds=(0, may.ravel()), constraints=rules, options=limit)
    if found.x is None and found.status != 2:  # 2: there is no solution
        raise TimeoutError(
            f"{cuts.network.name}: the solver did not find out within {MOST_SECONDS} s whether {count} steps are enough"
        )
    sent = [] if found.x is None else np.argwhere(found.x.reshape(may.shape) > 0.5).tolist()
    return sent and [[Sent(c, int(sources[p]), int(destinations[p])) for c, p, at in sent if at == i] for i in numbers]
