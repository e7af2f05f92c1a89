"""Reports of hangs: a thread in each process, the watch, checks whether the process's devices wait too long.

Every message of a schedule is known in advance, so a process knows which message a device waits for. The watches ask
each other what their devices are waiting for, on a communicator of their own, and answer even while devices wait:

    rank 0   waits 117 s for rank 1 ──► "and you?" ──► rank 1   waits for rank 2
                                                 └──► rank 2   (no answer)
    rank 0   waits 120 s: reports which elements of rank 2 rank 1 waits for, and that rank 2 is silent; ends the job

The report begins with a wait for a process that does not wait itself, since such a wait causes the others.

A process at the end of its program also asks the others whether they are still there. A second thread checks, without
MPI, that the watch itself makes progress: if a process is stopped while it writes to memory that MPI shares between
processes, the others may never return from their MPI calls.
"""

import os
import sys
import threading
import time
from typing import NamedTuple

from ..devices.errors import one_line
from . import ending
from .communicator import HangError
from .ending import end, leave
from .supervisor import last_words, tell

TAGS = ASK, ANSWER, LEAVING, SPEAKING, OVER, HUNG = range(6)
"""Tags of the watches' messages, in order: a question about the receiver's waits; the answer, a `State`; "my program is
at its end"; "I am reporting a hang"; "the job is over"; and, where processes are interactive, "a hang was reported, so
end your waits"."""

LOOK = 0.05
"""Seconds between two rounds of the watch's loop."""

LAST_MESSAGES = 0.5
"""The most seconds that a process that ends the job waits for its messages to the others to leave."""

GRACE = 3.0
"""Seconds beyond the patience that a watch may take for a round of its loop, and other processes for an answer."""

HANG = "this cluster ends (call d2l.cluster() in all processes for a new one)"
"""The consequence of a hang where the processes live on."""


class State(NamedTuple):
    """A process's answer: the seconds of its longest wait, what is missing in words, and the rank it should come from.

    ``order``: as in `Waiting`, to find the earliest of several waits. If there is no wait, ``seconds`` is None, and
    ``text`` says where the program is. ``heard``: for each rank, the seconds since its last message. ``then``: the
    time, by this process's `time.monotonic`, when the state was made or arrived here.
    """

    seconds: float
    order: tuple
    text: str
    missing_from: int
    heard: list
    then: float

    def now(self, now):
        """This state at the time ``now``, if nothing has changed since."""
        seconds = None if self.seconds is None else self.seconds + now - self.then
        return self._replace(seconds=seconds, heard=[age + now - self.then for age in self.heard], then=now)


class Watch:
    """The watch of one process. ``comm``: a communicator of the watches; ``hosts[rank]``: the host of each process."""

    def __init__(self, comm, hosts, patience):
        self.comm, self.hosts, self.patience = comm, hosts, patience
        self.early = min(3.0, patience / 4)  # the others are asked this many seconds before ``patience`` is over
        self.heard = [time.monotonic()] * comm.size
        self._others = [rank for rank in range(comm.size) if rank != comm.rank]
        self._requests = []  # MPI's requests for messages on their way
        self._asked, self._asked_then, self._answers = None, None, {}  # the others were asked about this wait
        self._main = threading.main_thread().ident
        self._left, self._gone = set(), threading.Event()  # ranks at their end; set when all are
        self._at_end = self._asked_at = self._told = None  # when this process came to its end, asked there, said so
        self._unanswered = [0] * comm.size  # questions that this process has asked at its end
        self._looks = 0
        self._hushed = 0.0  # another process reports until then
        self.hung = False

    def begin(self, communicators):
        """Watch these communicators from now on."""
        self.communicators = list(communicators)
        for work in (self._run, self._watch_the_watch):
            threading.Thread(target=work, name="d2lmgpu cluster watch", daemon=True).start()

    def leave(self):
        """At the end of the program, wait until all programs have ended; the watch still answers the others."""
        self._main, self._at_end = None, time.monotonic()  # the watch's thread tells the others
        self._gone.wait()
        tell(over=True)

    def _run(self):
        while len(self._left) < self.comm.size or self._requests:
            try:
                self._hear()
            except Exception as error:  # MPI's, where it does not end the job by itself
                end(self.comm, [f"a process is gone: {one_line(error)}; the job ends"], silent=True)
            self._look()
            self._look_from_the_end()
            self._requests = [request for request in self._requests if not request.Test()]
            self._looks += 1
            time.sleep(LOOK)
        self._gone.set()

    def _watch_the_watch(self):
        """End this process, and with it the job, if its watch makes no progress; this does not use MPI."""
        looks = still = 0
        while not self._gone.wait(LOOK):
            looks, before = self._looks, looks
            still = still + 1 if looks == before else 0  # counts looks: the program may have stopped all threads
            if still * LOOK > self.patience + GRACE:
                here = self._called(self.comm.rank)
                last_words([f"{here}: MPI keeps its watch from asking the others; {self.state().text}; the job ends"])
                tell(over=True)
                os._exit(1)

    def _hear(self):
        for rank in self._others:
            for tag in TAGS:
                while self.comm.iprobe(rank, tag):
                    content = self.comm.recv(source=rank, tag=tag)
                    self.heard[rank], self._unanswered[rank] = time.monotonic(), 0
                    if tag == ASK:
                        self._requests.append(self.comm.isend(self.state(), rank, ANSWER))
                    elif tag == ANSWER:
                        self._answers[rank] = content._replace(then=time.monotonic())
                    elif tag == SPEAKING:
                        self._hushed = time.monotonic() + self.patience + GRACE
                    elif tag == OVER:
                        leave(*content)
                    elif tag == HUNG:
                        self._give_up(content)
                    else:
                        self._left.add(rank)

    def _tell(self, tag, content):
        self._requests += [self.comm.isend(content, rank, tag) for rank in self._others]

    def tell_over(self, how):
        """Make all others call `ending.leave(*how)`, and wait a moment for the messages. Any thread may call this."""
        requests = [self.comm.isend(how, rank, OVER) for rank in self._others]
        until = time.monotonic() + LAST_MESSAGES
        while requests and time.monotonic() < until:
            requests = [request for request in requests if not request.Test()]
            time.sleep(LOOK / 10)

    def _look(self):
        """Ask the others shortly before ``patience`` is over, then report and end the job, unless a lower rank does.

        The others get time to answer, since this process itself may have been without a CPU core. Interactive processes
        only end their waits, and live on; but a wait in a library's collective function can only be ended with the job.
        """
        now, waiting = time.monotonic(), self._longest()
        if waiting is None or now < self._hushed:
            return
        lives_on = ending.lives_on() and not isinstance(waiting.what, str)
        if lives_on and self.hung:  # the wait ends by itself
            return
        seconds = now - waiting.since
        if seconds > self.patience - self.early and self._asked != waiting:
            self._answers, self._asked, self._asked_then = {}, waiting, now
            self._tell(ASK, None)
        # If a lower rank has waited for about as long, it is given a second to report first.
        lower = [s for rank, s in self._answers.items() if rank < self.comm.rank and s.seconds is not None]
        patience = self.patience + (1 if any(s.seconds > self.patience - 2 * self.early for s in lower) else 0)
        if seconds < patience + GRACE and self._still_to_answer():
            return
        if seconds > patience and self._asked == waiting and now - self._asked_then > self.early:
            self._report(lives_on)

    def _report(self, lives_on):
        """Say what is missing, and end the job; if the processes are interactive, only end the waits in all of them."""
        self._tell(SPEAKING, None)
        lines = self.explain({**self._answers, self.comm.rank: self.state()}, HANG if lives_on else "the job ends")
        if lives_on:
            self._tell(HUNG, lines)
            self._give_up(lines)
        else:
            end(self.comm, lines, silent=len(self._answers) < self.comm.size - 1)

    def _give_up(self, lines):
        """End all waits in this process, now and later, with a `HangError` whose text is these lines."""
        self.hung = True
        for communicator in self.communicators:
            communicator.give_up(HangError("\n".join(lines)))

    def _still_to_answer(self):
        """Whether a process has sent something since it was asked, but not its answer, which must be on its way."""
        return self._asked and any(self.heard[r] > self._asked_then and r not in self._answers for r in self._others)

    def _look_from_the_end(self):
        """At the end of this process's program, end the job if another process does not answer.

        After ``patience`` seconds, the lowest rank at its end reports once, for each program that waits for nothing,
        where it is.
        """
        if self._at_end is None:
            return
        now, here = time.monotonic(), self.comm.rank
        if here not in self._left:
            self._left.add(here)
            self._tell(LEAVING, None)
        stay = [rank for rank in range(self.comm.size) if rank not in self._left]
        if self._asked_at is None or now - self._asked_at > self.early:
            self._asked_at = now
            for rank in stay:
                self._requests.append(self.comm.isend(None, rank, ASK))
                self._unanswered[rank] += 1
        patience = self.patience + (1 if here > min(self._left) else 0)  # the lowest rank reports
        begin = f"{self._called(here)} is at the end of its program and waits for"
        silent = [rank for rank in stay if (self._unanswered[rank] - 1) * self.early >= patience]
        if silent:
            said = {r: f"which does not answer, last heard from {now - self.heard[r]:.1f} s ago" for r in silent}
            end(self.comm, [f"{begin} {self._called(r)}, {said[r]}; the job ends" for r in silent], silent=True)
        if now - self._at_end > patience and not self._told:
            self._told = True
            known = {rank: self._answers[rank] for rank in stay if rank in self._answers}
            idle = [rank for rank in known if known[rank].seconds is None and here == min(self._left)]
            last_words([f"{begin} {self._called(rank)}: {known[rank].text}" for rank in idle])

    def _called(self, rank):
        return f"rank {rank} ({self.hosts[rank]})"

    def _longest(self):
        """The longest of the waits in this process, or None."""
        waits = [each.waiting for each in self.communicators]
        return min(filter(None, waits), key=lambda waiting: waiting.since, default=None)

    def state(self):
        """What this process is doing, as a `State`."""
        now, waiting = time.monotonic(), self._longest()
        heard = [now - then for then in self.heard]
        if waiting is None:
            return State(None, (), self._where(), None, heard, now)
        if isinstance(waiting.what, str):
            text, missing_from = f"{self._called(self.comm.rank)} waits in {waiting.what}", None
        else:
            text, missing_from = waiting.what()
        return State(now - waiting.since, waiting.order, text, missing_from, heard, now)

    def _where(self):
        """Where the program's main thread is now, in words."""
        frame = sys._current_frames().get(self._main)
        if frame is None:
            return "its program has come to its end"
        return f"its program is at line {frame.f_lineno} of {frame.f_code.co_filename}, in {frame.f_code.co_name}"

    def explain(self, states, end="the job ends"):
        """The lines of a report: the first thing that is missing, the rank it should come from, and all other waits.

        ``states``: a dict, by rank, of this process's `State` and those that the others answered. ``end``: what happens
        now.
        """
        now = time.monotonic()
        states = {rank: state.now(now) for rank, state in states.items()}
        waiting = {rank: state for rank, state in states.items() if state.seconds is not None}
        first = min(waiting.values(), key=lambda state: (state.missing_from in waiting, state.order))
        lines = [f"after {max(s.seconds for s in waiting.values()):.1f} s of waiting {end}: {first.text}"]
        culprits = [rank for rank in range(self.comm.size) if rank not in waiting]
        if first.missing_from is not None:
            lines[0] += f", last heard from {self._last_heard(first.missing_from, states):.1f} s ago"
            culprits = [first.missing_from] if first.missing_from in culprits else culprits
        for rank in culprits:
            said = f"answers, but does not take part: {states[rank].text}" if rank in states else "does not answer"
            lines.append(f"{self._called(rank)}, last heard from {self._last_heard(rank, states):.1f} s ago, {said}")
        if not culprits:
            lines.append("all processes wait for each other, so their programs differ")
        lines += [state.text for _, state in sorted(waiting.items()) if state is not first]
        return lines

    def _last_heard(self, rank, states):
        """The seconds since another process last heard from this rank."""
        return min(state.heard[rank] for other, state in states.items() if other != rank)
