"""A plan's step as several CUDA graphs: on each device what it does between two exchanges, which cannot be recorded.

Messages between processes, copies through the host and NCCL's sums are no part of a graph. So the step is submitted as
ever (step.py, step_across.py); but where kernels follow each other in a device's queue, it launches the *piece* that
was recorded of them:

    device 0    begin, F, B ┌─ allreduce ─┐ update, next minibatch
                 piece 0    │             │  piece 1
    device 1    begin, F, B └─ allreduce ─┘ update, next minibatch

A piece runs no Python. What an exchange asks the device for is what it had when the piece was recorded: always the
same arrays.
"""

import contextlib
from typing import Any, NamedTuple

import numpy as np

from ..devices import Batch
from ..devices.task import HAPPENED
from ..devices.workers import working_for
from ..timing import span
from .chains import Chains
from .graph_store import GraphStore
from .graphs import GraphExecution, OnDevices
from .step_across import StepAcross


class Piece(NamedTuple):
    """A graph, and the values that travel which the device has when it is done.

    ``final``: of a run the number of the event that happens then.
    """

    graph: Any
    values: dict
    final: int | None = None


class PieceStore(GraphStore):
    """As `GraphStore`, which see for the arguments."""

    def __init__(self, *arguments):
        self.arrivals = {}
        super().__init__(*arguments)

    def expect(self, value):
        """As of `Store`: the array from which pieces read it."""
        key = value, self.minibatch.examples[value[2]]
        if key not in self.arrivals:
            super().expect(value)
            self.values[value].fill(0)
            self.arrivals[key] = self.values[value]
        self.values[value] = self.arrivals[key]
        return self.exchanged(value)

    def take_overflow(self, rows):
        """The overflow of all devices, of which each has a row on the host."""
        self.overflow.fill(int(rows.raw.view(np.float64).any()))

    def piece(self, graph):
        """The `Piece` that ends here."""
        return Piece(graph, {value: array for value, array in self.values.items() if value in self.travels})

    def launch(self, piece, minibatch):
        """Do a piece."""
        self.minibatch, self.values = minibatch, dict(piece.values)
        self.unwritten.clear()
        with span("step"):
            piece.graph.launch(self.device.stream)


class PieceExecution(GraphExecution):
    """As `GraphExecution`, whose devices may be of several processes, or on cards that do not use each other's memory.

    ``library``: as of `Execution`.
    """

    kind_of_store = PieceStore

    def __init__(self, *arguments, **options):
        self.recording, self.pieces = None, {}
        super().__init__(*arguments, **options)
        self.make_step = PiecesAcross if self.across is not None else InPieces

    def record(self, sizes, steps=1):
        """Record the pieces of a step, for `submit_step`; the rest is as of `GraphExecution`, for one step."""
        minibatch, found = self.minibatch(sizes), {}
        with self.trying(lambda: self._issue(minibatch, self.stores)):
            for store in self.stores:  # one after the other: a thread records one stream at a time
                found[store] = self._issue(minibatch, [store], capture=True)
        for own in minibatch.values():
            own.sums.clear()  # losses are on the devices, summed over the epoch
        self.pieces[sizes] = found
        return sizes

    def _issue(self, minibatch, stores, capture=False):
        self.recording = Pieces(stores, capture)
        try:
            self.make_step(self, minibatch, 0.0, 0.0)
            for store in stores:
                self.recording.wait(store.device, None)
            return self.recording.found
        finally:
            self.recording.close()
            self.recording = None

    def submit_step(self, sizes, tell=0.0):
        """Begin a step of which the pieces have been recorded; the rest is as of `submit`."""
        return self.submit_placed(self.minibatch(sizes), 0.0, tell)


class InPieces(OnDevices):
    """A step in pieces: while they are being recorded all that is none of them is left out."""

    def make_batch(self):
        """What the step's work is given to."""
        return self.execution.recording or Launches(self)

    def kernels(self, store, function, *args):
        """As of `Step`."""
        return self.batch.kernels(store, function, *args)

    def fail(self, error):
        """As of `Step`. What cannot be recorded can still be launched kernel by kernel."""
        if self.execution.recording is None:
            super().fail(error)

    def run(self, store, action, events):
        """As of `Step`: where gradients become final, a piece ends."""
        self.batch.run(store, events, lambda final: self.do(store.do, action, final))

    def _add_receive(self, number, event):
        if self.execution.recording is not None:
            self.batch.note(self.execution.store[event.devices[0]], event.action.value)
        super()._add_receive(number, event)

    def _share_overflow(self, stores):
        makers = [lambda store=store: [float(store.overflow.get()[0])] for store in stores]
        for store, rows in zip(stores, self._gathered("gradients", 1, makers), strict=True):
            self.batch.chain(store.device, self.do, store.take_overflow, rows)


class PiecesAcross(InPieces, StepAcross):
    """Likewise, for the devices of one process of several."""


class Launches(Chains):
    """The work of a step whose pieces have been recorded."""

    def __init__(self, step):
        super().__init__()
        execution = step.execution
        self.step, self.minibatch = step, {store: step.minibatch[i] for i, store in execution.store.items()}
        self.left = {store: iter(pieces) for store, pieces in execution.pieces[tuple(step.examples)].items()}
        self.last = {}  # by device: the launch that came last

    def kernels(self, store, function, *args):
        """They are a part of the device's last piece, or begin the next one; returns the task."""
        device = store.device
        task, work = self._open.get(device, (None, ()))
        if not work or work[-1] is not self.last.get(device):
            task = self.chain(device, self._launch, store, next(self.left[store]))
            self.last[device] = self._open[device][1][-1]
        return task

    def run(self, store, events, run):
        """A piece for each event when gradients are final, and what comes after it."""
        self.submit(store.device, self._launch_run, store, events, next(self.left[store]))

    def _launch(self, store, piece):
        self.step.do(store.launch, piece, self.minibatch[store])

    def _launch_run(self, store, events, pieces):
        try:
            for piece in pieces:
                self._launch(store, piece)
                if piece.final is not None:
                    events[piece.final].finish(store.device.mark())
        finally:
            for event in events:
                if not event.done():
                    event.finish(store.device.mark())


class Pieces(Batch):
    """Of what is given to a step's batch this thread does the kernels of some ``stores`` at once. The rest is left out.

    With ``capture`` there is one of them, whose kernels are recorded. ``found``: its pieces, a run's in a list.
    """

    def __init__(self, stores, capture):
        super().__init__()
        self.stores, self.capture = {store.device: store for store in stores}, capture
        self.found, self.open = [], set()

    def kernels(self, store, function, *args):
        """Do them; returns a task, which is done."""
        if store.device in self.stores:
            with store.device.as_current(), working_for(store.device):
                self._begin(store)
                function(*args)
        return HAPPENED

    def run(self, store, events, run):
        """Do a run."""
        if store.device not in self.stores:
            return
        self._end(store.device)
        before, self.found = self.found, []
        with store.device.as_current(), working_for(store.device):
            self._begin(store)
            run([_Cut(self, store, number) for number in range(len(events))])
        self._end(store.device)
        self.found = [*before, self.found]

    def note(self, store, value):
        """The device will be given this value."""
        if store.device in self.stores:
            with store.device.as_current(), working_for(store.device):
                store.expect(value)

    def close(self):
        """Nothing is being recorded any more."""
        for device in self.open if self.capture else ():
            with contextlib.suppress(Exception), device.as_current():  # it may say that nothing can come of this
                device.stream.end_capture()

    # What is left out, at which a piece ends:

    def submit_to_all(self, devices, function, *args):
        """As of `Batch`."""
        for device in devices:
            self._end(device)
        return HAPPENED

    def chain(self, device, function, *args):
        """As of `Chains`."""
        return self.submit(device, function, *args)

    def wait(self, device, event):
        """As of `Batch`."""
        self._end(device)

    def _begin(self, store):
        if self.capture and store.device not in self.open:
            store.device.stream.begin_capture()
        self.open.add(store.device)

    def _end(self, device):
        if device not in self.open:
            return
        store, stream, graph = self.stores[device], device.stream, None
        with device.as_current(), working_for(device):
            store.branches.join()
            self.open.remove(device)
            if self.capture:
                graph = stream.end_capture()
                graph.upload(stream)
        self.found.append(store.piece(graph))  # without a graph, too: it keeps its arrays, and so others are taken


class _Cut:
    """In the place of an event that happens in the midst of a run: there a piece ends, and the next one begins."""

    def __init__(self, pieces, store, number):
        self.pieces, self.store, self.number = pieces, store, number

    def finish(self, mark):
        """Now."""
        self.pieces._end(self.store.device)
        self.pieces.found[-1] = self.pieces.found[-1]._replace(final=self.number)
        self.pieces._begin(self.store)
