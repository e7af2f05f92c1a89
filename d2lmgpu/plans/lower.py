"""From a plan's steps to what its devices are given one after the other: events, in an order in which all can happen.

send, receive    a y or dy that is handed on as a whole: two events, of the sender and of the receiver
collective       all other transfers of a value in consecutive steps without computations, among devices that have
                 to do with each other: one event of them all
keep             elements of a value that are added to another on the same device
free             a value that no later step reads (language/lives.py)
F, B, I, W, update
"""

from typing import NamedTuple

from ..language.lives import lives_of
from ..language.memory import Facts, joined_values
from ..language.moves import Moves


class Action(NamedTuple):
    """What devices do in an event, about a ``value``, or of a stage and a micro-batch.

    ``peer``: the other device of "send" and "receive". ``group`` and ``schedule``: of "collective", whose schedule's
    device i is ``group[i]``. ``bounds``: of "keep" the elements; ``target``: to what they are added; of B and W the
    value to which gradients are.
    """

    what: str
    stage: int
    micro_batch: int = None
    value: tuple = None
    peer: int = None
    group: tuple = ()
    schedule: tuple = ()
    bounds: tuple = None
    target: tuple = None

    def __str__(self):
        """ "B of stage 2, micro-batch 3", "send of y of stage 0, micro-batch 3, to device 1"."""
        text = f"{self.what} of {self.value[0]} of " if self.value else f"{self.what} of "
        text += f"stage {self.stage}" + ("" if self.micro_batch is None else f", micro-batch {self.micro_batch}")
        if self.what in ("send", "receive"):
            text += f", {'to' if self.what == 'send' else 'from'} device {self.peer}"
        if self.what == "collective":
            text += f", of devices {', '.join(map(str, self.group))}"
        return text


class Event(NamedTuple):
    """An action of ``devices`` in a ``step`` of the plan, from 1."""

    devices: tuple
    step: int
    action: Action


def events_of(plan, columns):
    """The plan's `Event`, a list; ``columns``: its steps as `check_plan` gives them."""
    joined, events, block, gone = joined_values(plan, columns), [], _Block(), {}
    for life in lives_of(plan, columns):
        if life.value[0] != "moments":  # which are read at the step's end
            gone.setdefault(life.end, []).append(life)
    for number, (computes, moves) in enumerate(columns, 1):
        if computes:
            events += block.ended()
        for each in moves:
            if each.value[0] in ("y", "dy") and each.value not in joined:
                events += _handed_on(each, number)
            elif each.target != each.value:
                events += block.ended() + _kept(each, number)
            else:
                block.add(each, number)
        for what, device, s, m, into in computes:
            events.append(Event((device,), number, Action(what, s, m, target=into or ("grads", s))))
        if number in gone:
            events += block.ended()
        for device, value, _, _ in gone.get(number, ()):
            events.append(Event((device,), number, _about("free", value)))
    return events + block.ended()


def _about(what, value, **fields):
    """An action about a value."""
    kind, s, *m = value
    return Action(what, s, m[0] if m and kind != "grads" else None, value, **fields)


def _handed_on(each, number):
    """A send and a receive for each transfer."""
    events = []
    for source, destination in zip(each.source.tolist(), each.destination.tolist(), strict=True):
        events.append(Event((source,), number, _about("send", each.value, peer=destination)))
        events.append(Event((destination,), number, _about("receive", each.value, peer=source)))
    return events


def _kept(each, number):
    """What is added to another value of the same device."""
    rows = zip(each.source.tolist(), each.start.tolist(), each.stop.tolist(), strict=True)
    return [
        Event((device,), number, _about("keep", each.value, bounds=(start, stop), target=each.target))
        for device, start, stop in rows
        if start < stop
    ]


class _Block:
    """Transfers of consecutive steps, by their values."""

    def __init__(self):
        self.steps, self.number = {}, 0  # by value: lists of `Moves`, by the number of the step

    def add(self, moves, number):
        self.steps.setdefault(moves.value, {}).setdefault(number, []).append(moves)
        self.number = number

    def ended(self):
        """The events of the block, which begins anew."""
        events = []
        for value, steps in self.steps.items():
            transfers = [[_plain(each) for each in moves] for moves in steps.values()]
            for group in _groups([t for step in transfers for rows in step for t in rows]):
                place = {device: i for i, device in enumerate(group)}
                schedule = tuple(
                    tuple(
                        t._replace(source=place[t.source], destination=place[t.destination])
                        for rows in step
                        for t in rows
                        if t.source in place and t.start < t.stop
                    )
                    for step in transfers
                )
                schedule = tuple(step for step in schedule if step)
                events.append(Event(group, self.number, _about("collective", value, group=group, schedule=schedule)))
        self.steps = {}
        return events


def _plain(moves: Moves):
    """The transfers of some `Moves`."""
    return [moves.transfer(i) for i in range(len(moves.source))]


def _groups(transfers):
    """The devices of the transfers, in groups that have to do with each other: tuples, ascending."""
    groups = {}
    for t in transfers:
        if groups.setdefault(t.source, {t.source}) is not groups.setdefault(t.destination, {t.destination}):
            both = groups[t.source] | groups[t.destination]
            groups |= dict.fromkeys(both, both)
    return [tuple(sorted(group)) for group in {id(group): group for group in groups.values()}.values()]


def extents_of(plan, columns, events):
    """For each device by gradients the elements (start, stop) that it has: in a collective all have the same."""
    facts, extents = Facts(plan, columns).extents, [{} for _ in plan.layout]
    for value, (start, stop) in facts.items():
        for own, *bounds in zip(extents, start.tolist(), stop.tolist(), strict=True):
            own[value] = tuple(bounds)
    for devices, _, action in events:
        if action.what == "collective" and action.value[0] == "grads":
            all_bounds = [extents[i][action.value] for i in devices]
            whole = min(start for start, _ in all_bounds), max(stop for _, stop in all_bounds)
            for i in devices:
                extents[i][action.value] = whole
    return extents
