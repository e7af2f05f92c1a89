"""A plan's step as several CUDA graphs: each has a device's work between two exchanges, which cannot be recorded.

Messages between processes, copies through the host and NCCL's sums cannot be part of a graph. So the step is submitted
as usual (step.py, step_across.py). But instead of kernels that follow each other in a device's queue, a recorded
*piece* is launched:

    device 0    begin, F, B ┌─ allreduce ─┐ update, next minibatch
                 piece 0    │             │  piece 1
    device 1    begin, F, B └─ allreduce ─┘ update, next minibatch

A piece runs no Python code. Exchanges always use the arrays that the device had when the piece was recorded.
"""

import numpy as np

from ..spans import span
from .graph_store import GraphStore
from .graphs import GraphExecution, OnDevices
from .piece_batches import Launches, Pieces
from .step_across import StepAcross


class PieceStore(GraphStore):
    """Like `GraphStore`, with the same arguments."""

    def __init__(self, *arguments):
        self.arrivals = {}
        super().__init__(*arguments)

    def expect(self, value):
        """As in `Store`. It returns the array from which the pieces read the value."""
        key = value, self.minibatch.examples[value[2]]
        if key not in self.arrivals:
            super().expect(value)
            self.values[value].fill(0)
            self.arrivals[key] = self.values[value]
        self.values[value] = self.arrivals[key]
        return self.exchanged(value)

    def take_overflow(self, rows):
        """Set ``overflow`` if any device has an overflow; ``rows``: what each device says of itself, on the host."""
        self.overflow.fill(int(rows.raw.view(np.float64).any()))

    def piece(self, graph):
        """The piece that ends here: its graph, and the values to be exchanged that the device has after the piece."""
        return graph, {value: array for value, array in self.values.items() if value in self.travels}

    def launch(self, piece, minibatch):
        """Launch a piece."""
        graph, values = piece
        self.minibatch, self.values = minibatch, dict(values)
        self.unwritten.clear()
        with span("step"):
            graph.launch(self.device.stream)


class InPieces(OnDevices):
    """A step in pieces. While the pieces are recorded, all other work is left out."""

    def make_batch(self):
        """The batch for the step's work."""
        return self.execution.recording or Launches(self)

    def kernels(self, store, function, *args):
        """As in `Step`."""
        return self.batch.kernels(store, function, *args)

    def fail(self, error):
        """As in `Step`, but not during recording: if that fails, the kernels can still be launched one by one."""
        if self.execution.recording is None:
            super().fail(error)

    def run(self, store, action, events):
        """As in `Step`; a piece ends where gradients become final."""
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
    """`InPieces` for the devices of one of several processes."""


class PieceExecution(GraphExecution):
    """Like `GraphExecution`, but devices may be in several processes, or on cards that cannot use each other's memory.

    ``library``: see `Execution`.
    """

    kind_of_store, kinds_of_steps = PieceStore, (InPieces, PiecesAcross)

    def __init__(self, *arguments, **options):
        self.recording, self.pieces = None, {}
        super().__init__(*arguments, **options)

    def record(self, sizes):
        """Like `GraphExecution.record`, but record the pieces of a step, for `submit_step`."""
        minibatch, found = self.minibatch(sizes), {}
        with self.trying(lambda: self._issue(minibatch, self.stores)):
            for store in self.stores:  # one by one: a thread records one stream at a time
                found[store] = self._issue(minibatch, [store], capture=True)
        for own in minibatch.values():
            own.sums.clear()  # losses stay on the devices, summed over the epoch
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
        """Like `submit`, for a step whose pieces have been recorded."""
        return self.submit_placed(self.minibatch(sizes), 0.0, tell)
