"""Each process of a cluster has a parent process that outlives it and reports how it ended.

The process that mpiexec or srun has started forks before MPI begins. The child is the rank; the parent, its supervisor,
only waits for it:

    mpiexec ──► supervisor ──► rank 1    is killed by signal 9
                    └─► prints "rank 1 (b) was killed by signal 9", and ends; then mpiexec ends the others

MPI's launchers end all other processes as soon as one that they started ends with an error. Here, the process that they
started is the supervisor, so its line is printed first. The rank reports its progress to the supervisor through a pipe
(see `tell`).
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
import warnings

from ..devices.cpu import libc

LAUNCHERS = {
    "PMI_SIZE": "PMI_RANK",
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
    "WORLD_SIZE": "RANK",
}
"""Environment variables with the number of processes and the rank, as set by MPICH's mpiexec and its relatives, by Open
MPI's, by srun and by torchrun."""

RANKS = (*LAUNCHERS.values(), "PMIX_RANK")
"""Environment variables with the rank."""

NOT_FORKED = ("mpi4py.MPI", "cupy", "torch")
"""Modules whose libraries do not work in a child process that is forked after they were loaded."""

PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")
"""Signals that the supervisor passes on to its rank."""

GRACE = 3.0
"""Seconds that a supervisor waits after its patience is over, so that other processes can report what they wait for."""

START = 30.0
"""Seconds that MPI may take to begin, even if the patience is shorter."""

AFTER = 0.5
"""Seconds from a rank's end until its supervisor reports it. If mpiexec has ended all processes, it ends the
supervisors, too, before they report anything."""

LINGER = 1.0
"""Seconds that the other ranks usually have to end by themselves, before mpiexec ends them."""

LOOK = 0.2
"""Seconds between two checks of a rank that sends nothing."""

BUS_HINT = ", perhaps because /dev/shm is full (give a container more: docker run --shm-size=1g)"
"""The likely cause of SIGBUS: MPI exchanges messages in shared memory."""

PR_SET_PDEATHSIG = 1
"""The value of this constant in Linux's prctl.h."""

_pipe = None
"""In a rank that has a supervisor, the end of the pipe through which the rank sends to it."""


def last_words(lines, seconds=0.5):
    """Write the lines to standard error, each after "d2lmgpu: ", and give mpiexec half a second to pass them on."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write("".join(f"d2lmgpu: {line}\n" for line in lines))
        sys.stderr.flush()
    time.sleep(seconds if lines else 0)


def supervise():
    """Fork this process; the child returns, and the parent becomes its supervisor.

    Does nothing if this was done before, if there is no os.fork, if standard input is a terminal, or if this process
    has started other threads or imported a module of `NOT_FORKED`.
    """
    alone = threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
    if _pipe is not None or not hasattr(os, "fork") or not alone or any(name in sys.modules for name in NOT_FORKED):
        return
    with contextlib.suppress(AttributeError, ValueError):  # the stream is None, or closed
        if sys.stdin.isatty():  # only one process group at a time can read from a terminal, and the child gets its own
            return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()  # otherwise both processes would write what is still in its buffer
    _divide()


def tell(**news):
    """Send the supervisor, if there is one, new values of its attributes:

    - ``patience``: the seconds to wait for other processes; ``began``: when (`time.monotonic`) this one began to wait;
    - ``together=True``: MPI has begun;
    - ``rank``: the rank's number among the processes that compute;
    - ``over=True``: do not report how this process ends;
    - ``linger``: the seconds that the others have to end by themselves, before mpiexec ends them.
    """
    if _pipe is not None:
        with contextlib.suppress(OSError):
            _pipe.send(news)


def is_supervised():
    """Whether this process is a rank that has a supervisor."""
    return _pipe is not None


def _divide():
    global _pipe
    reading, writing = multiprocessing.Pipe(duplex=False)
    parent = os.getpid()
    passed_on = [getattr(signal, name) for name in PASSED_ON if hasattr(signal, name)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # until the supervisor can pass them on
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of BLAS's threads, but BLAS handles forks
        child = os.fork()
    if child:
        try:
            writing.close()
            supervisor = _Supervisor(child, reading)
            for signum in passed_on:
                signal.signal(signum, supervisor.pass_on)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            supervisor.run()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    reading.close()
    _pipe = writing
    os.setpgid(0, 0)  # so that a signal to the whole group does not arrive twice
    libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the supervisor ended before prctl was called
        os._exit(1)


class _Supervisor:
    """The work of the parent process, which never returns to the program."""

    def __init__(self, child, reading):
        self.child, self.reading = child, reading
        self.rank = next((os.environ[name] for name in RANKS if name in os.environ), "?")
        self.patience, self.together, self.over, self.linger = None, False, False, 0.0
        self.passed_on, self.said = set(), set()
        self.stopped = None

    def run(self):
        """Wait for the child, and end as it does."""
        while True:
            self._read(LOOK)
            pid, status = os.waitpid(self.child, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid and os.WIFSTOPPED(status):
                by = os.WSTOPSIG(status)
                self.paused = by in self.passed_on  # a stop that was passed on is intended
                self.stopped = None if self.paused else (time.monotonic(), by)
            elif pid and os.WIFCONTINUED(status):
                self.stopped, self.paused = None, False
            elif pid:
                self._end(status)
            self._look()

    def _look(self):
        """Report a rank that has been stopped, or has waited for MPI to begin, for too long, and soon end the job.

        A stopped rank is reported shortly before the others' patience is over. The rank is killed `GRACE` seconds after
        that patience is over, so that the others can report what they wait for.
        """
        if self.patience is None or (self.together and not self.stopped):
            return
        if self.stopped:
            (since, by), patience, early = self.stopped, self.patience, 0.9 * self.patience
            seconds = time.monotonic() - since
            text = f"is stopped, by signal {by} ({_name(by)}), for {seconds:.1f} s"
        else:
            patience = early = max(self.patience, START)
            seconds = time.monotonic() - self.began
            text = f"waited {seconds:.0f} s for all others to begin with MPI; those that do not report this are missing"
        if seconds > early and self.stopped not in self.said:
            self.said.add(self.stopped)
            self._say(text)
        if seconds > patience + GRACE:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            os._exit(1)

    def _read(self, seconds):
        """Read what the rank sends within this many seconds; return whether it has sent something."""
        try:
            if self.reading.poll(seconds):
                vars(self).update(self.reading.recv())
                return True
        except EOFError:  # the rank is ending
            time.sleep(0.01)
        return False

    def _end(self, status):
        """Report how the rank has ended, and end with its exit code.

        Nothing is reported if the rank has reported it itself, if a signal that was passed on ended it, or if it ended
        with exit code 0 before MPI began.
        """
        while self._read(0):
            pass
        code = os.waitstatus_to_exitcode(status)
        asked = -code in self.passed_on
        well = code == 0 and not self.together  # it ended before it met the others
        if not (self.over or asked or well):
            time.sleep(AFTER)
            if code < 0:
                self._say(f"{how_it_ended(code)}{BUS_HINT if code == -signal.SIGBUS else ''}")
            else:
                self._say(f"{how_it_ended(code)} before the others")
                code = code or 1  # also after exit code 0: the others still wait for this rank
        if code and self.linger:
            self._linger()
        os._exit(code if code >= 0 else 128 - code)

    def _linger(self):
        """Leave a child process that keeps the connection to the launcher open for a while.

        When the connection of a process closes, MPICH's mpiexec kills all processes, and takes the signal's number as
        its own exit code, unless they have ended by themselves before.
        """
        sys.stdout.flush()
        if os.fork() == 0:
            time.sleep(self.linger)
            os._exit(0)

    def _say(self, text):
        last_words([f"rank {self.rank} ({socket.gethostname()}) {text}; the job ends"])

    def pass_on(self, signum, frame):
        """The supervisor's signal handler: passes the signal on to the rank."""
        self.passed_on.add(signum)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signum)


def how_it_ended(code):
    """How a process ended, in words, by its exit code; a negative one is a signal's number."""
    return f"was killed by signal {-code} ({_name(-code)})" if code < 0 else f"ended with exit code {code}"


def _name(number):
    return next((each.name for each in signal.Signals if each == number), "without a name")
