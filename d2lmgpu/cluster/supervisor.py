"""A parent beside each process of a cluster, which outlives it and can say how it ended.

What mpiexec or srun started divides in two before MPI begins: the child is the rank, and
its parent only waits for it, so that it knows what nobody else can tell:

    mpiexec ──► supervisor ──► rank 1    is killed by signal 9
                    └─► "rank 1 (b) was killed by signal 9", and ends; whereupon mpiexec ends the others

MPI's launchers end all other processes as soon as one that they started ends with an error, and this one ends only
when it has spoken. The rank tells it how far it is, in lines through a pipe.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
import warnings

LAUNCHERS = {
    "PMI_SIZE": "PMI_RANK",
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
    "WORLD_SIZE": "RANK",
}
"""Environment variables in which MPICH's mpiexec and its like, Open MPI's, srun, and torchrun tell a process how many
there are, and which of them it is."""

RANKS = (*LAUNCHERS.values(), "PMIX_RANK")
"""Those that tell a process its number."""

NOT_FORKED = ("mpi4py.MPI", "cupy", "torch")
"""Modules of whose libraries a child that is forked afterwards may make no use."""

PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")
"""Signals that the rank gets when its supervisor does."""

GRACE = 3.0
"""Seconds after its patience that a supervisor leaves the others to say what they lack."""

START = 30.0
"""Seconds that MPI's own beginning may take, whatever the patience."""

AFTER = 0.5
"""Seconds from a rank's end until its supervisor speaks: where mpiexec ends all processes, it is ended before."""

LINGER = 1.0
"""Seconds after the end of a rank that others usually have to end by themselves, before mpiexec ends them."""

LOOK = 0.2
"""Seconds between two looks at a rank of which nothing is heard."""

HINTS = {
    "SIGBUS": ", perhaps for want of shared memory in /dev/shm (a container's: docker run --shm-size=1g)",
}
"""By signals that kill: what is likely to have been the cause."""

PR_SET_PDEATHSIG = 1
"""In Linux's prctl.h."""

_pipe = None
"""In a rank that has a supervisor: the pipe's end on which it tells."""


def last_words(lines):
    """Say the lines on standard error, each as one of this package's, and give mpiexec the time to pass them on."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write("".join(f"d2lmgpu: {line}\n" for line in lines))
        sys.stderr.flush()
    time.sleep(0.5 if lines else 0)


def supervise():
    """Divide this process in two, of which the child returns. Does nothing where that cannot be done.

    Not when it has been done, without os.fork, at a terminal, or when other threads, MPI or perhaps CUDA have begun in
    this process.
    """
    alone = threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
    if _pipe is not None or not hasattr(os, "fork") or not alone or any(name in sys.modules for name in NOT_FORKED):
        return
    with contextlib.suppress(AttributeError, ValueError):  # a stream that there is not, or that is closed
        if sys.stdin.isatty():  # which only one of a terminal's groups of processes may read
            return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()  # or both would write what is in them
    _divide()


def tell(line):
    """Let the supervisor know: "patience 30", "together" when MPI has begun, "over" when all that is to say is said.

    "rank 1" is how it is called, if some of the processes do not compute. "over 3": the others have three seconds to
    end by themselves, before mpiexec ends them.
    """
    if _pipe is not None:
        with contextlib.suppress(OSError):
            os.write(_pipe, f"{line}\n".encode())


def is_supervised():
    """Whether this process is a rank that has a supervisor."""
    return _pipe is not None


def _divide():
    global _pipe
    reading, writing = os.pipe()
    parent = os.getpid()
    passed_on = [getattr(signal, name) for name in PASSED_ON if hasattr(signal, name)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # until there is who passes them on
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which those of BLAS are: it expects forks
        child = os.fork()
    if child:
        try:
            os.close(writing)
            supervisor = _Supervisor(child, reading)
            for signum in passed_on:
                signal.signal(signum, supervisor.pass_on)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            supervisor.run()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(reading)
    _pipe = writing
    os.setpgid(0, 0)  # so that a signal for the whole group does not come twice
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _Supervisor:
    """What the parent does; it never returns to the program."""

    def __init__(self, child, reading):
        self.child, self.reading = child, reading
        rank = next((os.environ[name] for name in RANKS if name in os.environ), "?")
        self.host = socket.gethostname()
        self.name = f"rank {rank} ({self.host})"
        self.patience, self.together, self.over = None, False, False
        self.passed_on, self.said = set(), set()
        self.began = self.stopped = None
        self.unread = b""

    def run(self):
        """Wait for the child, and end as it does."""
        while True:
            self._read()
            pid, status = os.waitpid(self.child, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid and os.WIFSTOPPED(status):
                by = os.WSTOPSIG(status)
                self.stopped = None if by in self.passed_on else (time.monotonic(), by)
            elif pid and os.WIFCONTINUED(status):
                self.stopped = None
            elif pid:
                self._end(status)
            self._look()

    def _look(self):
        """End the job if its rank is stopped, or has waited too long for MPI, but let the others speak before."""
        if self.patience is None:
            return
        if self.stopped:
            since, by = self.stopped
            seconds = time.monotonic() - since
            if seconds > 0.9 * self.patience:
                self._say_once(f"is stopped, by signal {by} ({_name(by)}), for {seconds:.1f} s")
            if seconds > self.patience + GRACE:
                self._kill()
        elif not self.together:
            seconds = time.monotonic() - self.began
            if seconds > max(self.patience, START):
                self._say_once(
                    f"waited {seconds:.0f} s for all others where MPI begins; missing is who does not say so"
                )
            if seconds > max(self.patience, START) + GRACE:
                self._kill()

    def _read(self):
        """What the rank tells, for which this waits a moment."""
        if self.reading is None:
            time.sleep(0.01)  # it ends
            return
        if not select.select([self.reading], [], [], LOOK)[0]:
            return
        more = os.read(self.reading, 4096)
        if not more:  # the rank ends, or has closed it
            os.close(self.reading)
            self.reading = None
        *lines, self.unread = (self.unread + more).split(b"\n")
        for line in lines:
            word, *values = line.decode().split()
            if word == "patience":
                self.patience, self.began = float(values[0]), time.monotonic()
            elif word == "together":
                self.together = True
            elif word == "rank":
                self.name = f"rank {values[0]} ({self.host})"
            elif word == "over":
                self.over, self.linger = True, float(values[0]) if values else 0.0

    def _end(self, status):
        """The rank has ended: say how, unless it has said so itself, and end as it did."""
        while self.reading is not None and select.select([self.reading], [], [], 0)[0]:
            self._read()
        code = os.waitstatus_to_exitcode(status)
        asked = -code in self.passed_on
        well = code == 0 and not self.together  # it did not even begin with the others
        if not (self.over or asked or well):
            time.sleep(AFTER)
            if code < 0:
                self._say(f"{how_it_ended(code)}{HINTS.get(_name(-code), '')}")
            else:
                self._say(f"{how_it_ended(code)} before the others")
                code = code or 1
        if self.over and code and self.linger:
            self._linger()
        os._exit(code if code >= 0 else 128 - code)

    def _linger(self):
        """Leave somebody who keeps the connection to the launcher open for a while.

        MPICH's mpiexec kills all processes when the connection of one closes, and its own exit code is then the
        signal's number. Those that have ended by themselves until then have told their own.
        """
        sys.stdout.flush()
        if os.fork() == 0:
            time.sleep(self.linger)
            os._exit(0)

    def _kill(self):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        os._exit(1)

    def _say(self, text):
        last_words([f"{self.name} {text}; the job ends"])

    def _say_once(self, text):
        if self.stopped not in self.said:
            self.said.add(self.stopped)
            self._say(text)

    def pass_on(self, signum, frame):
        """The handler of signals."""
        self.passed_on.add(signum)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signum)


def how_it_ended(code):
    """A process's end in words, by its exit code, which is negative for a signal."""
    return f"was killed by signal {-code} ({_name(-code)})" if code < 0 else f"ended with exit code {code}"


def _name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a signal of its own"
