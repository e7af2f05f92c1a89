"""Work beside the main stream of a device, for results that the next kernel there need not wait for.

Backward goes from gradient to gradient, dx → dx → dx. The weights' gradients branch off from that path, but nothing on
it waits for them. In a single stream, every kernel waits for the one before it. On a branch, kernels wait only for what
they need:

    main       head ── dense1 dx ── conv2 dx ── conv1 dW, reduce ─┬─ update
                 │                     └─ conv2 dW, reduce ───────┤
                 ├─ dense1 dW ────────────────────────────────────┤
                 └─ dense2 dW ────────────────────────────────────┘

A branch is a stream that waits for an event of the main stream; in the end, the main stream waits for an event of the
branch. While streams are captured, these waits become the edges of the graph.

Whether work can be recorded as a graph here is tried; so is whether kernels can add arrays that lie on another card, as
collectives let them where CuPy's own functions refuse or warn.
"""

import contextlib
import itertools

import numpy as np

from ...base.text import listed
from ...devices.gpu import mark_of
from ...devices.peers import ADDERS, PROBE, Adder, copy_async, try_across
from ...devices.probes import probe
from . import launch
from .launch import current_card, run

LAUNCHES, _LENGTH = 3, 10_000
"""How many times the graph in the trial is launched, and the number of elements of its arrays."""

ADDED = ("float32", "float64", "int64")
"""The dtypes of arrays that `add` takes."""


class SideStreams:
    """Makes branches of the current device's stream ``main``."""

    def __init__(self, main):
        self._main, self._under_way = main, []

    def branch(self):
        """A new `Branch`, which is used again in every step."""
        import cupy

        return Branch(self._main, cupy.cuda.Stream(non_blocking=True), self._under_way)

    def join(self):
        """Let the main stream's next work wait for all work that the branches have been given."""
        while self._under_way:
            self._main.wait_event(mark_of(self._under_way.pop()))


class Branch:
    """``with branch:`` gives work to its stream, to begin when what the main stream has been given so far is done.

    The arrays that it computes with must not be overwritten before the next `SideStreams.join`.
    """

    def __init__(self, main, stream, under_way):
        self._main, self._stream, self._under_way = main, stream, under_way

    def __enter__(self):
        self._stream.wait_event(mark_of(self._main))
        if self._stream not in self._under_way:
            self._under_way.append(self._stream)
        self._stream.__enter__()

    def __exit__(self, *exception):
        self._stream.__exit__(*exception)

    def join(self):
        """Let the main stream's next work wait for the work that this branch has been given."""
        if self._stream in self._under_way:
            self._under_way.remove(self._stream)
            self._main.wait_event(mark_of(self._stream))


def add(target, message):
    """target += message, for flat CuPy arrays of one size and one of `ADDED`; the target's card is current.

    The message may lie on a card whose memory this one uses.
    """
    run(launch.add(target.size, str(target.dtype)), target, message, np.int32(target.size))


def adds_across(card, other):
    """Whether kernels on each of two cards, which have peer access, read the other's memory correctly; tried once."""

    def attempt():
        for here, there in ((card, other), (other, card)):
            numbers = np.random.default_rng(here).integers(1, 2**20, PROBE).astype(np.float32)
            sums = try_across(here, there, numbers, lambda target, message, stream: add(target, message))
            if not np.array_equal(sums, numbers + 1):
                raise RuntimeError(f"a kernel on gpu({here}) adds other numbers than those on gpu({there})")

    return probe(f"gpu({card}) and gpu({other})", "adding across", "messages are copied before they are added", attempt)


ADDERS["gpu"] = Adder(add, adds_across, ADDED)


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
    card, instead = current_card(), "steps are launched kernel by kernel"
    return probe(f"gpu({card})", "a CUDA graph", instead, lambda: _try_graph([card, card]))


def graphs_span(cards):
    """Whether one graph can span these cards, which use each other's memory, and does what it should; tried once."""
    cards = sorted(cards)
    names, instead = listed(f"gpu({card})" for card in cards), "steps on them are launched kernel by kernel"
    return len(cards) == 1 or probe(names, "a CUDA graph over them", instead, lambda: _try_graph(cards))


def _try_graph(cards):
    """Try a graph of streams, one for each of these cards, which may be the same.

    Kernels add what another stream has computed, once around, and copies of the sum go to all others: from a number on
    each, a launch makes (number of cards + 1) times this number, and 2. Raises RuntimeError if the results are wrong.
    """
    import cupy

    streams, sums, ones = [], [], []
    for card in cards:
        with cupy.cuda.Device(card), cupy.cuda.Stream(non_blocking=True) as stream:
            streams.append(stream)
            sums.append(cupy.zeros(_LENGTH, np.float32))
            ones.append(cupy.ones(_LENGTH, np.float32))
            add(sums[-1], ones[-1])  # compiled now: nothing can be while work is recorded
            sums[-1].fill(0)
            stream.synchronize()
    others = range(1, len(cards))

    def then(here, there, do):
        """Let stream ``there`` do something with the numbers of stream ``here``, once that has finished with them."""
        with cupy.cuda.Device(cards[here]):
            event = mark_of(streams[here])
        with cupy.cuda.Device(cards[there]), streams[there] as stream:
            stream.wait_event(event)
            do(sums[there], sums[here], stream)

    def issue():
        add(sums[0], ones[0])
        for here, there in itertools.pairwise([0, *others, 0]):
            then(here, there, lambda target, source, _: add(target, source))
        for other in others:
            then(0, other, copy_async)
            then(other, 0, lambda *_: None)

    with cupy.cuda.Device(cards[0]), streams[0] as stream:
        graph = capture(stream, issue)
        graph.upload(stream)
        for _ in range(LAUNCHES):
            graph.launch(stream)
        stream.synchronize()
    number = 0
    for _ in range(LAUNCHES):
        number = (len(cards) + 1) * number + 2
    for card, stream, array in zip(cards, streams, sums, strict=True):
        with cupy.cuda.Device(card), stream:
            found = array.get()
        if (found != number).any():
            raise RuntimeError(f"launched {LAUNCHES} times it gives {found.min()} to {found.max()} instead of {number}")
