"""Streams, events and graphs of the stand-in for CuPy, with a detector of missing waits.

Work is done as soon as it is launched, so results are right even if a program
forgets that streams run at their own pace. Here such a mistake is found by
*vector clocks* (Lamport 1978; Mattern 1989): each stream counts its work, and
knows of every other stream up to which number it has waited for it. Whoever
reads or writes memory must know of those who wrote it, whoever writes also of
those who read it. Otherwise on a GPU it would sometimes be too early.
"""

import itertools
import threading
import time

import numpy as np

state = threading.local()  # .card and .stream: what is current on a thread
_lock = threading.RLock()
_numbers = itertools.count(1)
_accesses = []  # (start, stop, stream, count, is_write): who used which bytes last
_done = {}  # stream: count up to which the host program has waited for it


class RaceError(RuntimeError):
    """Work that uses memory without having waited for other work that uses it."""


def restart():
    """Forget all work: a new test."""
    with _lock:
        _accesses.clear()
        _done.clear()


def forget(values):
    """New memory has no history."""
    start, stop = _bounds(values)
    with _lock:
        _accesses[:] = [a for a in _accesses if a[1] <= start or stop <= a[0]]


class Stream:
    def __init__(self, non_blocking=False):
        self.card, self.ptr, self.calls = getattr(state, "card", 0), next(_numbers), []
        self.count, self.known, self.capture = 0, {}, None

    def use(self):
        if self.card != getattr(state, "card", 0):
            raise ValueError("a stream of another card")
        state.stream = self

    def __enter__(self):
        self.outer = getattr(state, "stream", None)
        self.use()

    def __exit__(self, *exception):
        state.stream = self.outer

    def record(self):
        self.calls.append("record")
        return Event(self)

    def wait_event(self, event):
        assert isinstance(event, Event)
        self.calls.append("wait")
        with _lock:
            if event.capture is not None and self.capture is None:
                self.capture = event.capture  # the capture forks to this stream
                event.capture.streams.append(self)
                self.known_before, self.known = self.known, {}
            for stream, count in event.known.items():
                self.known[stream] = max(count, self.known.get(stream, 0))

    def synchronize(self):
        self.calls.append("synchronize")
        assert self.capture is None, "synchronize is not allowed while a stream is captured"
        with _lock:
            _done.update({s: max(c, _done.get(s, 0)) for s, c in {**self.known, self: self.count}.items()})

    def begin_capture(self, mode=None):
        assert self.capture is None
        self.capture = Graph(self)

    def end_capture(self):
        graph = self.capture
        assert graph is not None and graph.streams[0] is self, "capture ends where it began"
        for stream in graph.streams:
            if stream is not self and self.known.get(stream, 0) < stream.count:
                raise RuntimeError("cudaErrorStreamCaptureUnjoined: a forked stream was not joined")
            stream.capture = None
        for stream in graph.streams[1:]:
            stream.known = stream.known_before  # nothing was done yet, so nothing was waited for
        return graph


class Event:
    """Knows what its stream knew when it was recorded."""

    def __init__(self, stream):
        self.time, self.capture = time.perf_counter(), stream.capture
        self.known = {**stream.known, stream: stream.count}

    def synchronize(self):
        assert self.capture is None
        with _lock:
            _done.update({s: max(c, _done.get(s, 0)) for s, c in self.known.items()})


class Graph:
    """Captured work: done by `launch`, as one piece of work of the stream that launches it."""

    def __init__(self, origin):
        self.streams, self.work, self.accesses, self.launches = [origin], [], [], 0

    def upload(self, stream=None):
        pass

    def launch(self, stream=None):
        self.launches += 1
        stream = stream or state.stream
        with _lock:
            stream.count += 1
            for start, stop, is_write in self.accesses:
                _use(stream, start, stop, is_write)
            for work in self.work:
                work()


def on_stream(work, reads, writes, makes_array=False):
    """Do ``work`` on the current stream, or record it while that is captured; check whom it must have waited for."""
    stream = state.stream
    bounds = [(*_bounds(a), False) for a in reads] + [(*_bounds(a), True) for a in writes]
    with _lock:
        if stream.capture is None and any(s.capture is not None for s in stream.known):
            raise RuntimeError("cudaErrorStreamCaptureIsolation: work outside of a capture depends on captured work")
        stream.count += 1
        for access in bounds:
            _use(stream, *access)
        if stream.capture is None:
            return work() if work else None
        if makes_array:
            raise RuntimeError("memory is made while a stream is captured")
        stream.capture.work.append(work)
        stream.capture.accesses += bounds
        return None


def _use(stream, start, stop, is_write):
    if start == stop:
        return  # an empty array
    kept = []
    for access in _accesses:
        begin, end, other, count, wrote = access
        apart = end <= start or stop <= begin
        if not apart and (wrote or is_write) and other is not stream:
            if max(stream.known.get(other, 0), _done.get(other, 0)) < count:
                use = "writes" if is_write else "reads"
                raise RaceError(
                    f"stream {stream.ptr} of card {stream.card} {use} memory that stream {other.ptr} of card "
                    f"{other.card} {'writes' if wrote else 'reads'}, without having waited for it"
                )
        replaced = start <= begin and end <= stop and (is_write or (other is stream and not wrote))
        if not replaced:
            kept.append(access)
    kept.append((start, stop, stream, stream.count, is_write))
    _accesses[:] = kept


def _bounds(memory):
    return memory if isinstance(memory, tuple) else np.lib.array_utils.byte_bounds(memory)
