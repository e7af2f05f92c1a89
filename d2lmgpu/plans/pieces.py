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

import numpy as np

from ..timing import span
from .graph_store import GraphStore
from .graphs import GraphExecution, OnDevices
from .piece_batches import Launches, Pieces
from .step_across import StepAcross


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
        """The piece that ends here: its graph, and the values that travel which the device has when it is done."""
        return graph, {value: array for value, array in self.values.items() if value in self.travels}

    def launch(self, piece, minibatch):
        """Do a piece."""
        graph, values = piece
        self.minibatch, self.values = minibatch, dict(values)
        self.unwritten.clear()
        with span("step"):
            graph.launch(self.device.stream)


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

    def _add_receive(self, number, action):
        if self.execution.recording is not None and action.devices[0] in self.execution.store:
            self.batch.note(self.execution.store[action.devices[0]], action.value)
        super()._add_receive(number, action)

    def _share_overflow(self, stores):
        makers = [lambda store=store: [float(store.overflow.get()[0])] for store in stores]
        for store, rows in zip(stores, self._gathered("gradients", 1, makers), strict=True):
            self.batch.chain(store.device, self.do, store.take_overflow, rows)


class PiecesAcross(InPieces, StepAcross):
    """Likewise, for the devices of one process of several."""


class PieceExecution(GraphExecution):
    """As `GraphExecution`, whose devices may be of several processes, or on cards that do not use each other's memory.

    ``library``: as of `Execution`.
    """

    kind_of_store, kinds_of_steps = PieceStore, (InPieces, PiecesAcross)

    def __init__(self, *arguments, **options):
        self.recording, self.pieces = None, {}
        super().__init__(*arguments, **options)

    def record(self, sizes):
        """Record the pieces of a step, for `submit_step`; the rest is as of `GraphExecution`."""
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
                self.recording.end(store.device)
            return self.recording.found
        finally:
            self.recording.close()
            self.recording = None

    def submit_step(self, sizes, tell=0.0):
        """Begin a step of which the pieces have been recorded; the rest is as of `submit`."""
        return self.submit_placed(self.minibatch(sizes), 0.0, tell)
