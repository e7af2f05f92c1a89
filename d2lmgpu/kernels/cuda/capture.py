"""Record work as a CUDA graph, and try whether that works here."""

import contextlib
import itertools

import numpy as np

from ...devices.gpu import mark_of
from ...devices.peers import copy_async
from ...devices.trials import works
from ...words import listed
from .add import add
from .run import current_card

LAUNCHES = 3
"""How many times the graph in the trial is launched."""

IN_A_ROW = 3
"""How many of its kernels follow one another in one stream."""

LENGTH = 10_000
"""The number of elements of its arrays."""


def capture(stream, issue):
    """Record as a graph what ``issue()`` gives to ``stream``, and to streams that fork from it and join it again.

    The stream's card must be current. However this ends, nothing is being recorded afterwards. Raises whatever
    ``issue`` raises, and CuPy's errors if it did something that cannot be recorded.
    """
    stream.begin_capture()
    try:
        issue()
    except BaseException:
        with contextlib.suppress(Exception):  # it may say that the recording is of no use, which is known
            stream.end_capture()  # otherwise all streams would go on recording, for ever
        raise
    return stream.end_capture()


def graphs_work():
    """Whether a graph of two streams can be recorded on the current card and does what it should; tried once.

    This is called on a device's thread.
    """
    return works(f"gpu({current_card()})", "a CUDA graph", "steps are launched kernel by kernel", _try_graph)


def _try_graph():
    """One stream adds, another goes on from there, then the first one again. Raises RuntimeError for wrong sums."""
    import cupy

    main, side = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
    x, y, one = cupy.zeros(LENGTH, np.float32), cupy.zeros(LENGTH, np.float32), cupy.ones(LENGTH, np.float32)

    def issue():
        one.fill(1)
        for _ in range(IN_A_ROW):
            add(x, one)
        side.wait_event(mark_of(main))
        with side:
            add(y, x)
        main.wait_event(mark_of(side))
        add(x, y)

    add(x, y)  # compiled now: nothing can be while work is recorded
    main.synchronize()
    graph = capture(main, issue)
    graph.upload(main)
    expected = sums = 0
    for _ in range(LAUNCHES):
        graph.launch(main)
        expected += IN_A_ROW
        sums += expected
        expected += sums
    _compare(x.get(), expected)


def graphs_span(cards):
    """Whether one graph can span these cards, which use each other's memory, and does what it should; tried once."""
    cards = sorted(cards)
    names, instead = listed(f"gpu({card})" for card in cards), "steps on them are launched kernel by kernel"
    return len(cards) == 1 or works(names, "a CUDA graph over them", instead, lambda: _try_spanning(cards))


def _try_spanning(cards):
    """As in an allreduce, kernels add what lies on another card, from card to card and back, and copies go to all.

    Raises RuntimeError if the results are wrong.
    """
    import cupy

    first, streams, sums, one = cards[0], {}, {}, {}
    for card in cards:
        with cupy.cuda.Device(card), cupy.cuda.Stream(non_blocking=True) as stream:
            streams[card] = stream
            sums[card], one[card] = cupy.zeros(LENGTH, np.float32), cupy.ones(LENGTH, np.float32)
            add(sums[card], one[card])  # compiled now
            sums[card].fill(0)
            stream.synchronize()
    way = list(itertools.pairwise([*cards, *reversed(cards[:-1])]))

    def across(here, there, do):
        """Let card ``there`` do something with the numbers of card ``here``, once that has finished with them."""
        with cupy.cuda.Device(here):
            event = mark_of(streams[here])
        with cupy.cuda.Device(there), streams[there] as stream:
            stream.wait_event(event)
            do(sums[there], sums[here], stream)

    def issue():
        add(sums[first], one[first])
        for here, there in way:
            across(here, there, lambda target, source, _: add(target, source))
        for other in cards[1:]:
            across(first, other, copy_async)
        for other in cards[1:]:
            across(other, first, lambda *_: None)

    with cupy.cuda.Device(first), streams[first] as stream:
        graph = capture(stream, issue)
        graph.upload(stream)
        for _ in range(LAUNCHES):
            graph.launch(stream)
        stream.synchronize()
    expected = dict.fromkeys(cards, 0)
    for _ in range(LAUNCHES):
        expected[first] += 1
        for here, there in way:
            expected[there] += expected[here]
        expected = dict.fromkeys(cards, expected[first])
    for card in cards:
        with cupy.cuda.Device(card), streams[card]:
            _compare(sums[card].get(), expected[card])


def _compare(found, expected):
    if not np.array_equal(found, np.full(LENGTH, expected, np.float32)):
        raise RuntimeError(f"launched {LAUNCHES} times it gives {found.min()} to {found.max()} instead of {expected}")
