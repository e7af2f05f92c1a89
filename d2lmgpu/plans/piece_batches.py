"""Batches for a step in pieces: `Pieces` records the pieces, `Launches` launches them.

Both get the same calls in the same order, so they agree on the pieces: in a device's queue, the first kernels after any
other work begin a piece.

    the step submits    kernels  kernels  exchange  kernels  wait  kernels
    Pieces records      └── piece 0 ───┘            piece 1        piece 2
    Launches submits    launch 0          exchange  launch 1 wait  launch 2
"""

import contextlib
from types import SimpleNamespace

from ..devices import Batch
from ..devices.task import HAPPENED
from ..devices.workers import working_for
from .chains import Chains


class Launches(Chains):
    """A batch with the work of a step whose pieces have been recorded."""

    def __init__(self, step):
        super().__init__()
        execution = step.execution
        self.step, self.minibatch = step, {store: step.minibatch[i] for i, store in execution.store.items()}
        self.left = {store: iter(pieces) for store, pieces in execution.pieces[tuple(step.examples)].items()}
        self.last = {}  # for each device: the latest launch

    def kernels(self, store, function, *args):
        """Add kernels to the device's last piece, or begin the next one; return the task."""
        device = store.device
        task, work = self._open.get(device, (None, ()))
        if not work or work[-1] is not self.last.get(device):
            task = self.chain(device, self._launch, store, next(self.left[store]))
            self.last[device] = self._open[device][1][-1]
        return task

    def run(self, store, events, run):
        """Launch the pieces of a run. All but the last trigger an event each, from the last stage to the first."""
        self.submit(store.device, self._launch_run, store, events, next(self.left[store]))

    def _launch(self, store, piece):
        self.step.do(store.launch, piece, self.minibatch[store])

    def _launch_run(self, store, events, pieces):
        try:
            for piece, event in zip(pieces, [*reversed(events), None], strict=False):
                self._launch(store, piece)
                if event is not None:
                    event.finish(store.device.mark())
        finally:
            self.step.let_happen(events, store.device)


class Pieces(Batch):
    """A step's batch that does the kernels of some ``stores`` immediately, in this thread, and leaves out the rest.

    With ``capture``, there is one store, whose kernels are recorded. ``found``: its pieces; those of a run are in a
    list of their own.
    """

    def __init__(self, stores, capture):
        super().__init__()
        self.stores, self.capture = {store.device: store for store in stores}, capture
        self.found, self.open = [], set()

    def kernels(self, store, function, *args):
        """Do the kernels; return a task that is done."""
        if store.device in self.stores:
            with store.device.as_current(), working_for(store.device):
                self.begin(store)
                function(*args)
        return HAPPENED

    def run(self, store, events, run):
        """Do the kernels of a run."""
        if store.device not in self.stores:
            return
        self.end(store.device)
        before, self.found = self.found, []
        with store.device.as_current(), working_for(store.device):
            self.begin(store)
            run([SimpleNamespace(finish=lambda mark: self._cut(store))] * len(events))
        self.end(store.device)
        self.found = [*before, self.found]

    def _cut(self, store):
        """End a piece and begin the next one, at an event in the middle of a run."""
        self.end(store.device)
        self.begin(store)

    def note(self, store, value):
        """Note that the device will receive this value."""
        if store.device in self.stores:
            with store.device.as_current(), working_for(store.device):
                store.expect(value)

    def begin(self, store):
        """Begin a piece of the store's device, unless one has begun."""
        if self.capture and store.device not in self.open:
            store.device.stream.begin_capture()
        self.open.add(store.device)

    def end(self, device):
        """End the device's piece, if one has begun."""
        if device not in self.open:
            return
        store, stream, graph = self.stores[device], device.stream, None
        with device.as_current(), working_for(device):
            store.branches.join()
            self.open.remove(device)
            if self.capture:
                graph = stream.end_capture()
                graph.upload(stream)
        self.found.append(store.piece(graph))  # without a graph, too: a piece keeps its arrays from later ones

    def close(self):
        """Stop recording."""
        for device in self.open if self.capture else ():
            with contextlib.suppress(Exception), device.as_current():  # an error may say that the recording is invalid
                device.stream.end_capture()

    # Work that is left out, but ends a piece:

    def submit_to_all(self, devices, function, *args):
        """As in `Batch`."""
        for device in devices:
            self.end(device)
        return HAPPENED

    def chain(self, device, function, *args):
        """As in `Chains`."""
        return self.submit(device, function, *args)

    def wait(self, device, event):
        """As in `Batch`."""
        self.end(device)
