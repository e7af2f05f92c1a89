"""Memory of the stand-in for CuPy: who may use it, until when, and who must have waited for whom.

Work is done as soon as it is launched, so results are right even if a program forgets that streams run at their own
pace, or gives memory back that is still in use. Here such mistakes are found:

- by *vector clocks* (Lamport 1978; Mattern 1989): each stream counts its work, and knows of every other stream up to
  which number it has waited for it. Whoever reads or writes memory must know of those who wrote it, whoever writes also
  of those who read it. Otherwise on a GPU it would sometimes be too early;
- memory that nobody holds any more is poisoned, and to use it, as a captured graph may try, is an error;
- CuPy gives it to the stream that took it as soon as that asks for memory: by then other streams must be done with it;
- what is taken from a pool goes back to it, and the same stream gets it when it asks for as many bytes again: CUDA
  hears of neither. When nobody holds the pool any more, its memory is gone;
- what is copied from the host's memory must not change, nor be given back, before somebody waited for the copy. It
  need not be done when the call returns: on machines whose GPUs can read all of the host's memory it is not.
"""

import bisect
import ctypes
import weakref

import numpy as np
import standin_driver
from standin_driver import call, lock

accesses = []  # (start, stop, stream, count, is_write): who used which bytes last
_done = {}  # stream: count up to which the host program has waited for it
_blocks = {}  # address: Block, of all memory that was taken and not given back
_addresses = []  # the same addresses, sorted
_given_back = {}  # stream: [(other stream, count)] who used what will be given to it next
_copied = []  # (stream, count, the host's array, weakly, its address, its bytes): copies that nobody waited for yet


class RaceError(RuntimeError):
    """Work that uses memory without having waited for other work that uses it."""


class FreedError(RuntimeError):
    """Work that uses memory which its owner has given back."""


def restart():
    """Forget all work: a new test."""
    with lock:
        for things in (accesses, _done, _blocks, _addresses, _given_back, _copied):
            things.clear()


class Pool:
    """Blocks that are free, by stream and size."""

    def __init__(self):
        self.free = {}

    def take(self, nbytes, stream):
        """The bytes of a free block, or None."""
        blocks = self.free.get((stream, nbytes))
        return blocks.pop().values if blocks else None

    def give_back(self, values, stream):
        """Keep a block. For whoever looks who has these bytes it is one that is held."""
        free = _Free(values, stream.card)
        self.free.setdefault((stream, len(values)), []).append(free)
        _blocks[values.ctypes.data] = weakref.ref(free)
        weakref.finalize(free, _forget_block, values.ctypes.data).atexit = False


class _Free:
    def __init__(self, values, card):
        self.values, self.card = values, card


def _forget_block(start):
    """A free block is gone, with its pool, or is no longer free."""
    with lock:
        if start in _blocks and _blocks[start]() is None:
            del _blocks[start]
            _addresses.remove(start)


class Block:
    """Some bytes, taken by ``stream``. Whoever holds the block may use them: when nobody does, they are given back.

    ``pool``: the `Pool` that they are taken from, unless it is CuPy's own, which is not imitated.
    """

    def __init__(self, nbytes, stream, pool=None):
        nbytes = max(1, nbytes)
        self.card, self.values = stream.card, None
        if pool is not None:
            with lock:
                self.values = pool.take(nbytes, stream)
        if self.values is None:
            call("malloc", stream.capture)
            self.values = np.full(nbytes, 0xFF, np.uint8)  # not a number, or -1, where nobody writes
        start = self.values.ctypes.data
        with lock:
            now = stream.capture.table if stream.capture else accesses
            for other, count, table in _given_back.pop(stream, ()):
                if table is now and not has_waited(stream, other, count, table):
                    raise RaceError(
                        f"stream {stream.ptr} of card {stream.card} takes memory that stream {other.ptr} of card "
                        f"{other.card} may still use: it was given back without waiting for that"
                    )
            _forget(start, start + len(self.values))
            bisect.insort(_addresses, start)
            _blocks[start] = weakref.ref(self)
        weakref.finalize(self, _give_back, self.values, stream, pool and weakref.ref(pool)).atexit = False

    def array(self, shape, dtype):
        """The block as a NumPy array."""
        return np.ndarray(shape, dtype, self.values)


def _give_back(values, stream, pool):
    start, stop = values.ctypes.data, values.ctypes.data + len(values)
    with lock:
        if start not in _blocks:
            return  # a machine before this one had it
        table = stream.capture.table if stream.capture else accesses
        users = [(a[2], a[3], table) for a in table if a[0] < stop and start < a[1] and a[2] is not stream]
        _given_back.setdefault(stream, []).extend(users)
        _forget(start, stop)
        values.fill(0xFF)
        if pool is not None and pool() is not None:
            pool().give_back(values, stream)
        else:
            del _blocks[start]
            _addresses.remove(start)


def _forget(start, stop):
    accesses[:] = [a for a in accesses if a[1] <= start or stop <= a[0]]


def has_waited(stream, other, count, table=accesses):
    """Whether the stream's next work comes after so much work of the other."""
    if other is stream or stream.known.get(other, 0) >= count:
        return True
    return table is accesses and _done.get(other, 0) >= count  # for captured work nobody can wait


def wait_for(known):
    """The host program waits for all that is known, {stream: count}."""
    with lock:
        _done.update({s: max(c, _done.get(s, 0)) for s, c in known.items()})
        for copy in list(_copied):
            stream, count, owner, start, before = copy
            if _done.get(stream, 0) >= count:
                _copied.remove(copy)
                if owner() is None:
                    raise RaceError("the host's memory was given back before somebody waited for a copy of it")
                if ctypes.string_at(start, len(before)) != before:
                    raise RaceError("the host's memory was changed before somebody waited for a copy of it")


def note_ahead(stream):
    """Note how much work of a stream the host program has not waited for."""
    machine = standin_driver.machine
    machine.ahead = max(machine.ahead, stream.count - _done.get(stream, 0))


def wait_for_card(card):
    """The host program waits for all work on a card."""
    with lock:
        streams = {access[2] for access in accesses} | {user[0] for users in _given_back.values() for user in users}
        streams = [stream for stream in streams if stream.card == card]
    for stream in streams:
        stream.catch_up()
    wait_for({stream: stream.count for stream in streams})


def is_done(known):
    """Whether the host program has waited for all that is known, so that it is sure to have happened."""
    return all(_done.get(stream, 0) >= count for stream, count in known.items())


def empty_pinned(shape, dtype):
    """Memory of the host whose pages stay where they are; what nobody has written there is not to be used."""
    call("hostAlloc")
    array = np.empty(shape, dtype)
    array.view(np.uint8).fill(0xFF)
    return array


def copy_from_host(stream, host):
    """Note that ``stream`` reads the host's array, which this does not keep."""
    owner = host
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    _copied.append((stream, stream.count, weakref.ref(owner), host.ctypes.data, host.tobytes()))


def block_at(start, stop):
    """The block that these bytes are of. Raises FreedError unless they belong to somebody."""
    with lock:
        place = bisect.bisect_right(_addresses, start) - 1
        block = _blocks[_addresses[place]]() if place >= 0 else None
        if block is None or stop > block.values.ctypes.data + len(block.values):
            raise FreedError("memory is used whose owner is gone")
        return block


def card_of(address):
    """The card that has the memory at this address."""
    return block_at(address, address).card


def use(stream, start, stop, is_write, table=accesses):
    """Note that the stream's newest work uses these bytes. Raises RaceError if it has not waited for who uses them.

    ``table``: that of a capture, if it is captured. What was done before counts for when its graph is launched.
    """
    if start == stop:
        return  # an empty array
    kept = []
    for access in table:
        begin, end, other, count, wrote = access
        apart = end <= start or stop <= begin
        if not apart and (wrote or is_write) and not has_waited(stream, other, count, table):
            use = "writes" if is_write else "reads"
            raise RaceError(
                f"stream {stream.ptr} of card {stream.card} {use} memory that stream {other.ptr} of card "
                f"{other.card} {'writes' if wrote else 'reads'}, without having waited for it"
            )
        replaced = start <= begin and end <= stop and (is_write or (other is stream and not wrote))
        if not replaced:
            kept.append(access)
    kept.append((start, stop, stream, stream.count, is_write))
    table[:] = kept


def bounds(memory):
    return memory if isinstance(memory, tuple) else np.lib.array_utils.byte_bounds(memory)
