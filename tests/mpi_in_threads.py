"""What the cluster's code asks of MPI, between the threads of one process: a communicator for each rank.

``eager``: a message is away as soon as it is sent; otherwise only when it was received, as long ones are in MPI.
"""

import collections
import pickle
import threading

import numpy as np

from d2lmgpu.devices.workers import THREADS


class Request:
    """``test`` looks whether it is done; whoever asks also sees to the rank's others, as MPI does."""

    def __init__(self, comm, test):
        self.comm, self.test, self.done = comm, test, False
        comm.requests.append(self)

    def Cancel(self):
        """Of what was to be received."""
        with self.comm.lock:
            self.comm.requests.remove(self)

    def Test(self):
        with self.comm.lock:  # several threads of a rank may ask
            for request in self.comm.requests.copy():
                if request.test():
                    request.done = True
                    self.comm.requests.remove(request)
        return self.done


class Comm:
    """Of one rank. ``sent`` counts the messages by (source, destination, tag), of all ranks."""

    def __init__(self, rank, size, mail, sent, eager):
        self.rank, self.size, self.mail, self.sent, self.eager = rank, size, mail, sent, eager
        self.requests, self.lock = [], threading.Lock()
        self.first = {}  # by rank and tag: where messages are to be received, in the order of the requests

    def Isend(self, message, rank, tag):
        message = message.copy() if self.eager else message
        taken = threading.Event()
        self._box(self.rank, rank, tag).append((message, taken))
        self.sent[self.rank, rank, tag] += 1
        return Request(self, lambda: self.eager or taken.is_set())

    def Irecv(self, room, rank, tag):
        mail, first = self._box(rank, self.rank, tag), self.first.setdefault((rank, tag), collections.deque())
        first.append(room)

        def test():  # a message goes to the request that was made first, also if it comes between two requests' tests
            if first[0] is not room or not mail:
                return False
            first.popleft()
            message, taken = mail.popleft()
            np.copyto(room, message)
            taken.set()
            return True

        return Request(self, test)

    def isend(self, content, rank, tag):
        """What Python has, which is away at once."""
        self._box(self.rank, rank, tag).append(pickle.dumps(content))
        return Request(self, lambda: True)

    def iprobe(self, rank, tag):
        return bool(self._box(rank, self.rank, tag))

    def recv(self, source, tag):
        return pickle.loads(self._box(source, self.rank, tag).popleft())

    def _box(self, *address):
        """The same for both sides: a defaultdict may give each of them a new one, if they ask at the same time."""
        return self.mail.setdefault(address, collections.deque())


def comms(size, eager=True):
    if not THREADS:
        import pytest  # which the website has not, though it imports this

        pytest.skip("each process is a thread")
    mail, sent = {}, collections.Counter()
    return [Comm(rank, size, mail, sent, eager) for rank in range(size)]
