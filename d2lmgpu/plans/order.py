"""What all readers of plans share: which device waits for which, and the order in which actions happen.

receive       begins when the value has been sent, and has arrived
free          when what was sent has been received
collective    when all devices of the group are there
all others    when their device has done what stands before them
"""

import heapq
from typing import NamedTuple

from ..language.plan import PlanError, device_action


class Event(NamedTuple):
    """An action of ``devices``, with its number in the list of each of them, from ``start`` to ``end``."""

    devices: tuple
    numbers: tuple
    action: object
    start: float
    end: float


def at_once(devices, action, start):
    """The default of `order`: no action takes time, nor any message."""
    return start, start


def order(plan, timing=at_once):
    """Yield the plan's actions as `Event`, in the order of their start.

    ``timing(devices, action, start)`` says when an action that begins at ``start`` ends, and what it sends arrives.
    Raises PlanError where devices wait for ever, and for what is sent twice or never received.
    """
    return _Order(plan, timing).events()


class _Order:
    def __init__(self, plan, timing):
        self.plan, self.timing = plan, timing
        self.at, self.clock = [0] * plan.k, [0.0] * plan.k  # of each device: actions done, time
        self.flying = {}  # messages sent and not received, (value, source, destination): (arrival, number of the send)
        self.owed = {}  # (value, source): how many of them are flying
        self.taken = {}  # (value, source): when the last was received
        self.ready = []  # a heap of (start, count, device)
        self.listed = [-1] * plan.k  # of each device: the action that was last put there
        self.count = 0

    def events(self):
        for device in range(self.plan.k):
            self._look(device)
        while self.ready:
            start, _, device = heapq.heappop(self.ready)
            action = self._next(device)
            devices = action.group if action.what == "collective" else (device,)
            end, arrival = self.timing(devices, action, start)
            yield Event(tuple(devices), tuple(self.at[member] for member in devices), action, start, end)
            awoken = self._note_message(device, action, arrival, end)
            for member in devices:
                self.at[member] += 1
                self.clock[member] = end
            for member in devices:
                self._look(member)
            if awoken is not None:
                self._look(awoken)
        self._check_done()

    def _next(self, device):
        todo = self.plan.actions[device]
        return todo[self.at[device]] if self.at[device] < len(todo) else None

    def _look(self, device):
        """If the device's next action can begin, it is ready."""
        action = self._next(device)
        if action is None:
            return
        start = self.clock[device]
        if action.what == "receive":
            message = self.flying.get((action.key, action.peer, device))
            if message is None:
                return
            start = max(start, message[0])
        elif action.what == "free":
            if self.owed.get((action.key, device)):
                return
            start = max(start, self.taken.get((action.key, device), start))
        elif action.what == "collective":
            if any(self._next(member) != action for member in action.group):
                return
            device, start = action.group[0], max(self.clock[member] for member in action.group)
        if self.listed[device] < self.at[device]:  # several may see that their collective can begin
            self.listed[device] = self.at[device]
            self.count += 1
            heapq.heappush(self.ready, (start, self.count, device))

    def _note_message(self, device, action, arrival, end):
        """Keep account of messages; returns the device that may have waited for this one's sending, or receipt."""
        if action.what == "send":
            if (action.key, device, action.peer) in self.flying:
                where = device_action(device, self.at[device], action)
                raise PlanError(f"{where}: it is sent already, and not yet received")
            self.flying[action.key, device, action.peer] = arrival, self.at[device]
            self.owed[action.key, device] = self.owed.get((action.key, device), 0) + 1
            return self._if_next(action.peer, "receive", action.key, device)
        if action.what == "receive":
            del self.flying[action.key, action.peer, device]
            self.owed[action.key, action.peer] -= 1
            self.taken[action.key, action.peer] = end
            return self._if_next(action.peer, "free", action.key)
        return None

    def _if_next(self, device, what, key, peer=None):
        action = self._next(device)
        waited = action is not None and action[:4] == (what, key[1], key[2], key[0]) and action.peer == peer
        return device if waited else None

    # What is wrong at the end:

    def _check_done(self):
        stuck = [device for device, todo in enumerate(self.plan.actions) if self.at[device] < len(todo)]
        if stuck:
            raise PlanError(self._why_stuck(stuck))
        for (_, source, destination), (_, number) in self.flying.items():
            where = device_action(source, number, self.plan.actions[source][number])
            raise PlanError(f"{where}: device {destination} never receives it")

    def _why_stuck(self, stuck):
        """A sentence about a device that waits for what never comes; or else about a circle of devices."""
        for device in stuck:
            for other, comes in self._awaited(device):
                if not comes:
                    return f"{self._where(device)} waits for ever: device {other} never does its part"
        circle, device = [], stuck[0]
        while device not in circle:
            circle.append(device)
            device = next(other for other, _ in self._awaited(device))
        circle = circle[circle.index(device) :]
        pairs = zip(circle, [*circle[1:], circle[0]], strict=True)
        return f"a deadlock: {'; '.join(f'{self._where(a)} waits for device {b}' for a, b in pairs)}"

    def _where(self, device):
        return device_action(device, self.at[device], self._next(device))

    def _awaited(self, device):
        """The devices that a device's next action waits for: pairs of a device, and whether it ever does its part."""
        action = self._next(device)
        if action.what == "receive":
            return [(action.peer, self._comes(action.peer, action._replace(what="send", peer=device)))]
        if action.what == "free":
            to = [other for key, source, other in self.flying if (key, source) == (action.key, device)]
            return [(other, self._comes(other, action._replace(what="receive", peer=device))) for other in to]
        return [(member, self._comes(member, action)) for member in action.group if self._next(member) != action]

    def _comes(self, device, action):
        return action in self.plan.actions[device][self.at[device] :]
