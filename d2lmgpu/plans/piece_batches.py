"""What the work of a step in pieces is given to: one batch records the pieces, another one launches them.

Both are asked for the same things in the same order, and so find the same pieces: one begins with the first kernels
after anything else in a device's queue.

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
        """A piece for each event when gradients are final, those of the last stage first, and what comes after it."""
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
                self.begin(store)
                function(*args)
        return HAPPENED

    def run(self, store, events, run):
        """Do a run."""
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
        """In the midst of a run, where an event happens: there a piece ends, and the next one begins."""
        self.end(store.device)
        self.begin(store)

    def note(self, store, value):
        """The device will be given this value."""
        if store.device in self.stores:
            with store.device.as_current(), working_for(store.device):
                store.expect(value)

    def begin(self, store):
        """The device's piece begins here, if it has none."""
        if self.capture and store.device not in self.open:
            store.device.stream.begin_capture()
        self.open.add(store.device)

    def end(self, device):
        """The device's piece ends here, if it has one."""
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

    def close(self):
        """Nothing is being recorded any more."""
        for device in self.open if self.capture else ():
            with contextlib.suppress(Exception), device.as_current():  # it may say that nothing can come of this
                device.stream.end_capture()

    # What is left out, at which a piece ends:

    def submit_to_all(self, devices, function, *args):
        """As of `Batch`."""
        for device in devices:
            self.end(device)
        return HAPPENED

    def chain(self, device, function, *args):
        """As of `Chains`."""
        return self.submit(device, function, *args)

    def wait(self, device, event):
        """As of `Batch`."""
        self.end(device)
