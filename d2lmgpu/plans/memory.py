"""What each device holds in memory while a plan is proved: bytes by kind, and the most that they come to.

Left out is what an action needs only while it computes.
"""

from ..language.plan import OF_STAGES
from ..language.sizes import examples_in_each, stage_sizes
from ..language.split import held_units, units_of_outputs

KINDS = ("parameters", "gradients", "state", "examples", "activations", "messages")
"""Examples: with their labels. State: the optimiser's. Activations: y, dy, caches and deltas that were made here.

Messages: y and dy that came from other devices, or in which collectives put parts and shares together.
"""

FLAT_KINDS = {"params": "parameters", "grads": "gradients"}
"""The kinds of a stage's values that are flat arrays."""

LABEL = 8
"""Bytes of one: an int64."""


class Memory:
    """The memory of one ``device`` of the plan, for ``batch_size`` examples and an optimiser with ``states`` arrays."""

    def __init__(self, plan, device, batch_size, states, dtype):
        self.plan, self.itemsize = plan, dtype.itemsize
        self.sizes = stage_sizes(plan.network, plan.stages, dtype, held_units(plan, device))
        self.examples = examples_in_each(batch_size, plan.micro_batches)
        self.sent = 0
        self._held = {}  # of each piece of memory: [how many values have it, bytes, kind]
        self._pieces = {}  # of each value: what it has, (piece, bytes)
        self.used = dict.fromkeys(KINDS, 0)
        for part in plan.layout[device]:
            self.used["parameters"] += self.itemsize * (part.params[1] - part.params[0])
            self.used["state"] += states * self.itemsize * (part.state[1] - part.state[0])
        self.between = self.total
        for stage, m in {(a.stage, a.micro_batch) for a in plan.actions[device] if a.what == "F"}:
            if stage == 0:
                self.used["examples"] += self.sizes[0].x(self.examples[m])
            if stage == len(plan.stages) - 1:
                self.used["examples"] += LABEL * self.examples[m]
        self.peak, self.peak_of = 0, {}
        self.look()

    @property
    def total(self):
        """The bytes that are held now."""
        return sum(self.used.values())

    def look(self):
        """An action is done: is it more than ever?"""
        if self.total > self.peak:
            self.peak, self.peak_of = self.total, dict(self.used)

    def add(self, key, is_message):
        """The value (name, stage, micro_batch) is there."""
        self._pieces[key] = self._pieces_of(key, is_message)
        self._hold(key, "messages" if is_message else "activations")

    def gather(self, key):
        """Before a collective of this y or dy: the whole array is there, and then what was there before is freed."""
        piece = "gathered", *key
        if self._pieces[key][0][0] == piece:
            return
        before, self._pieces[key] = self._pieces[key], [(piece, self.sizes[key[1]].whole(self.examples[key[2]]))]
        self._hold(key, "messages")
        self.look()
        self._let_go(before)

    def drop(self, key):
        """It is freed."""
        self._let_go(self._pieces.pop(key))

    def _hold(self, key, kind):
        for piece, nbytes in self._pieces[key]:
            count, *rest = self._held.get(piece, (0, nbytes, kind))
            self._held[piece] = count + 1, *rest
            if not count:
                self.used[rest[1]] += rest[0]

    def _let_go(self, pieces):
        for piece, _ in pieces:
            count, nbytes, kind = self._held.pop(piece)
            if count > 1:
                self._held[piece] = count - 1, nbytes, kind
            else:
                self.used[kind] -= nbytes

    def change(self, value, elements):
        """So many elements of params or grads came, or went if less than 0."""
        self.used[FLAT_KINDS[value]] += self.itemsize * elements

    def send(self, action):
        """What a "send" sends, in bytes."""
        self.sent += self.sizes[action.stage].whole(self.examples[action.micro_batch])

    def send_in_collective(self, action, count):
        """What it sends in a collective: so many elements of params or grads, or units of y or dy."""
        if action.value in OF_STAGES:
            self.sent += self.itemsize * count
        else:
            whole = self.sizes[action.stage].whole(self.examples[action.micro_batch])
            self.sent += count * whole // units_of_outputs(self.plan.network, self.plan.stages)[action.stage]

    def _pieces_of(self, key, is_message):
        """A value's pieces of memory: pairs of what is the same for the same memory, and its bytes."""
        name, stage, m = key
        sizes, N = self.sizes[stage], self.examples[m]
        if name in ("y", "dy"):
            return [(key, (sizes.whole if is_message else sizes.y if name == "y" else sizes.dy)(N))]
        if name == "delta":
            return [(key, sizes.delta(N))] + (self._pieces["dy", stage, m] if sizes.delta_has_dy else [])
        pieces = [(key, sizes.cache(N))]
        if sizes.cache_has_x and stage:
            pieces += self._pieces["y", stage - 1, m]
        if sizes.cache_has_y:
            pieces += self._pieces["y", stage, m]
        return pieces
