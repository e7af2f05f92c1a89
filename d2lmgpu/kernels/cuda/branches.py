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
"""

from ...devices.gpu import mark_of


class Branches:
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

    The arrays that it computes with must not be overwritten before the next `Branches.join`.
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
