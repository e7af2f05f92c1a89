"""Training with a plan whose steps are cut into several CUDA graphs: a device's work between exchanges is one call."""

from ..plans.pieces import PieceExecution
from .graph_step import GraphStep
from .plan_step import AHEAD


class PieceStep(GraphStep):
    """Like `GraphStep`, but also for devices of several processes, and for GPUs that cannot use each other's memory."""

    kind_of_execution, in_one_graph = PieceExecution, False

    def launch(self, most):
        """As in `Runner`: submit one step, and wait while too many are under way."""
        n = self.counts[self.number]
        self._launched.append(self.execution.submit_step(self.graphs[n], self.stop.wanted))
        self.number += 1
        if len(self._launched) > AHEAD:
            self._finish()
        return [n]

    def pause(self):
        """As in `GraphStep`; all processes call it."""
        while self._launched:
            self._finish()
        return super().pause()

    def close(self):
        """Do nothing: each device does its pieces in its own queue."""

    def _finish(self):
        """Wait for the first step that is under way."""
        step = self._launched.popleft()
        self.execution.finish(step)
        for end in step.ends:
            end.result().synchronize()
        if any(self.execution.told):
            self.stop.agree()

    def _let_first_wait(self):
        """Do nothing, for the same reason as in `close`."""
