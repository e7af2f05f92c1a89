"""Streams, events and graphs of the stand-in for CuPy, and which of them is current.

CuPy keeps a stack of current streams for each card and thread: ``with stream:`` pushes and pops. Where nobody chose a
stream, work goes to the card's *null stream*, which waits for the streams that are not ``non_blocking``, as they for
it; the others do not care.
"""

import collections
import itertools
import threading
import time
import weakref

import numpy as np
import standin_driver
import standin_memory
from standin_driver import CUDARuntimeError, call, current_card, lock, thread
from standin_memory import RaceError, block_at, bounds, use, wait_for

__all__ = ["Event", "Graph", "RaceError", "Stream", "current_stream", "elapsed_milliseconds", "on_stream", "restart"]

_numbers = itertools.count(3)  # 1 and 2 mean null streams where a stream is given by its ``ptr``
_null_streams = {}  # card: its null stream
_blocking = []  # the streams that wait for the null stream
_by_number = weakref.WeakValueDictionary()  # the streams that are not null, by their ``ptr``


def restart():
    """Forget all work: a new test."""
    with lock:
        standin_memory.restart()
        _null_streams.clear()
        _blocking.clear()


def _null_stream(card):
    with lock:
        if card not in _null_streams:
            _null_streams[card] = Stream(null=True, card=card)
        return _null_streams[card]


def stack_of(card):
    """The current streams of a card on this thread; the first is the null stream."""
    stacks = thread.__dict__.setdefault("stacks", {})
    null = _null_stream(card)
    if card not in stacks or stacks[card][0] is not null:  # of a machine before this one
        stacks[card] = [null]
    return stacks[card]


def current_stream(card=None):
    return stack_of(current_card() if card is None else card)[-1]


def stream_of(ptr, card):
    """The stream that a library names by its ``ptr``: 1 is the null stream."""
    return _null_stream(card) if ptr == 1 else _by_number[ptr]


class Later:
    """Work that is done once, by who first waits for it."""

    def __init__(self, work):
        self.work, self.done, self.turn = work, False, threading.Lock()

    def __call__(self):
        with self.turn:
            if not self.done:
                self.work()
            self.done = True


class Stream:
    def __init__(self, null=False, non_blocking=False, card=None):
        self.card = current_card() if card is None else card
        self.device_id = -1 if null else self.card
        self.ptr, self.non_blocking = 0 if null else next(_numbers), non_blocking
        self.count, self.known, self.capture = 0, {}, None
        self.depth = 0  # of what is captured: how many nodes follow one another up to here
        self.pending = collections.deque()  # of `Later`: what waits for other ranks of NCCL
        self._turn = threading.RLock()
        if not null:
            call("streamCreate")
            _by_number[self.ptr] = self
            if not non_blocking:
                _blocking.append(self)

    def check_is_of_current_card(self):
        """As CUDA does where a kernel is launched; the stand-in also where CUDA takes any card as the current one."""
        if self.card != current_card():
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle")

    def _check_card(self):
        if self.card != current_card():
            raise RuntimeError(
                f"The device that the stream is created on ({self.card}) does not match with the current device "
                f"({current_card()})"
            )

    def catch_up(self):
        """Do what this stream was given and could not do then: whoever comes after it here waits for it."""
        with self._turn:
            while self.pending:
                self.pending[0]()
                self.pending.popleft()

    def __enter__(self):
        self._check_card()
        stack_of(self.card).append(self)
        thread.__dict__.setdefault("entered", []).append(self.card)
        return self

    def __exit__(self, *exception):
        stack_of(thread.entered.pop()).pop()

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        assert isinstance(event, Event)
        call("streamWaitEvent", self.capture or event.capture)
        with lock:
            if event.capture is not None and event.capture.ended:
                raise CUDARuntimeError("cudaErrorInvalidResourceHandle")
            if event.capture is not None and self.capture is None:
                event.capture.fork(self)
            elif event.capture is None and self.capture is not None:
                self.capture.invalid = True
                raise CUDARuntimeError("cudaErrorStreamCaptureIsolation")
            self.pending.extend(event.pending)
            _learn(self, event.known)
            self.depth = max(self.depth, event.depth)

    def synchronize(self):
        call("streamSynchronize", self.capture)
        self.catch_up()
        self._order_after_null()
        wait_for({**self.known, self: self.count})

    def begin_capture(self, mode=None):
        """Stricter: with its card current."""
        call("streamBeginCapture", self.capture)
        self.check_is_of_current_card()
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self.capture = Graph(self)
        thread.__dict__.setdefault("captures", []).append(self.capture)

    def end_capture(self):
        """The graph. Whatever happened since `begin_capture`, no stream is captured afterwards."""
        graph = self.capture
        if graph is None or graph.streams[0] is not self:
            call("streamEndCapture")
            raise CUDARuntimeError("cudaErrorIllegalState")
        unjoined = any(self.known.get(s, 0) < s.count for s in graph.streams[1:])
        thread.captures.remove(graph)
        graph.ended = True
        for stream in graph.streams:  # nothing was done yet, so nothing was waited for
            stream.capture, stream.count, stream.known = None, *graph.before[stream]
        call("streamEndCapture")
        if graph.invalid:
            raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated")
        if unjoined:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnjoined")
        call("graphInstantiate")
        if graph.spans_cards():
            call("graphInstantiate over cards")
        return graph

    def is_capturing(self):
        call("streamIsCapturing", self.capture)
        return self.capture is not None

    def _order_after_null(self):
        """The null stream's work comes after that of all streams that are not ``non_blocking``, and theirs after it."""
        if self.ptr == 0:
            for stream in _blocking:
                if stream.card == self.card:
                    _learn(self, {**stream.known, stream: stream.count})
        elif not self.non_blocking:
            null = _null_stream(self.card)
            _learn(self, {**null.known, null: null.count})


def _learn(stream, known):
    for other, count in known.items():
        stream.known[other] = max(count, stream.known.get(other, 0))


class Event:
    """Knows what its stream knew when it was recorded."""

    def __init__(self, block=False, disable_timing=False):
        call("eventCreate")
        self.card, self.known, self.capture, self.time, self.depth = current_card(), {}, None, None, 0
        self.has_time, self.pending = not disable_timing, []

    def record(self, stream=None):
        """Stricter: with the stream's card current, and not only the event's own when it was made."""
        stream = stream or current_stream()
        call("eventRecord", stream.capture)
        stream.check_is_of_current_card()
        self.pending = list(stream.pending)
        if self.card != stream.card:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle")
        self.time, self.capture = time.perf_counter() if self.has_time else None, stream.capture
        standin_driver.machine.times += self.has_time
        self.known, self.depth = {**stream.known, stream: stream.count}, stream.depth

    def synchronize(self):
        call("eventSynchronize", self.capture)
        for later in self.pending:
            later()
        wait_for(self.known)

    @property
    def done(self):
        call("eventQuery", self.capture)
        return all(later.done for later in self.pending) and standin_memory.is_done(self.known)


def elapsed_milliseconds(begin, end):
    """As CUDA tells it: in float32, and only of events with a time that are sure to have happened, on one card."""
    call("eventElapsedTime", begin.capture or end.capture)
    if begin.time is None or end.time is None or begin.card != end.card:
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle")
    if not (standin_memory.is_done(begin.known) and standin_memory.is_done(end.known)):
        raise CUDARuntimeError("cudaErrorNotReady")
    return float(np.float32(1000 * (end.time - begin.time)))


class Graph:
    """Captured work: done by `launch`, as one piece of work of the stream that launches it.

    It knows which memory its work uses, and where that lies, but it does not hold it: that is its maker's business.
    """

    def __init__(self, origin):
        self.streams, self.work, self.accesses, self.launches = [], [], [], 0
        self.depth = 0  # nodes on the longest path
        self.invalid = self.ended = False
        self.table, self.before = [], {}  # who uses what; stream: its count and what it knew before
        self.fork(origin)

    def fork(self, stream):
        """This stream's work is captured, too, from now on."""
        self.before[stream] = stream.count, stream.known
        stream.capture, stream.count, stream.known, stream.depth = self, 0, {}, 0
        self.streams.append(stream)

    def spans_cards(self):
        return len({stream.card for stream in self.streams}) > 1

    def upload(self, stream=None):
        """Stricter: with the stream's card current, as in `launch`."""
        stream = stream or current_stream()
        call("graphUpload", stream.capture)
        stream.check_is_of_current_card()

    def launch(self, stream=None):
        stream = stream or current_stream()
        call("graphLaunch", stream.capture)
        stream.check_is_of_current_card()
        stream.catch_up()
        self.launches += 1
        with lock:
            stream.count += 1
            standin_memory.note_ahead(stream)
            for start, stop, is_write in self.accesses:
                block_at(start, stop)
                use(stream, start, stop, is_write)
            with np.errstate(all="ignore"):  # a GPU does not warn
                lost = self.spans_cards() and standin_driver.machine.garbles("graphs", stream.card)
                for card, work in self.work:
                    if work and not (lost and card != stream.card):
                        work()


def on_stream(name, work, reads, writes, stream=None):
    """Do ``work`` on the current stream, or record it while that is captured; check whom it must have waited for.

    ``name``: the call to CUDA that it is. ``work`` must hold no memory: the driver does not either.
    """
    stream = stream or current_stream()
    call(name, stream.capture)
    stream.check_is_of_current_card()
    stream.catch_up()
    accesses = [(*bounds(a), False) for a in reads] + [(*bounds(a), True) for a in writes]
    with lock:
        graph = stream.capture
        if graph is None:
            stream._order_after_null()
        stream.count += 1
        for start, stop, is_write in accesses:
            if start != stop:
                block_at(start, stop)
            use(stream, start, stop, is_write, *([graph.table] if graph else []))
        if graph is None:
            standin_memory.note_ahead(stream)
            return work() if work else None
        stream.depth += 1
        graph.depth = max(graph.depth, stream.depth)
        graph.work.append((stream.card, work))
        graph.accesses += [access for access in accesses if access[0] != access[1]]
        return None
