"""The driver of the stand-in for CuPy: a machine with some cards, and every call that a program makes to CUDA.

Whatever the stand-in does for the library goes through `call`, as everything goes through the driver on a real machine.
There it is decided what a capture permits, there calls are counted, and there tests let them fail.
"""

import collections
import hashlib
import itertools
import socket
import threading

MESSAGES = {
    "cudaErrorInvalidResourceHandle": "invalid resource handle",
    "cudaErrorInvalidDevice": "invalid device ordinal",
    "cudaErrorNotReady": "device not ready",
    "cudaErrorIllegalAddress": "an illegal memory access was encountered",
    "cudaErrorPeerAccessAlreadyEnabled": "peer access is already enabled",
    "cudaErrorPeerAccessNotEnabled": "peer access has not been enabled",
    "cudaErrorPeerAccessUnsupported": "peer access is not supported between these two devices",
    "cudaErrorStreamCaptureUnsupported": "operation not permitted when stream is capturing",
    "cudaErrorStreamCaptureInvalidated": "operation failed due to a previous error during capture",
    "cudaErrorStreamCaptureUnjoined": "capturing stream has unjoined work",
    "cudaErrorStreamCaptureIsolation": "dependency created on uncaptured work in another stream",
    "cudaErrorIllegalState": "the operation cannot be performed in the present state",
    "cudaErrorDevicesUnavailable": "CUDA-capable device(s) is/are busy or unavailable",
    "cudaErrorMemoryAllocation": "out of memory",
    "cudaErrorECCUncorrectable": "uncorrectable ECC error encountered",
    "cudaErrorSystemNotReady": "system not yet initialized",
    "cudaErrorUnknown": "unknown error",
}

LEGAL_IN_CAPTURE = {*"launchKernel memsetAsync eventCreate eventRecord streamWaitEvent streamEndCapture".split()}
LEGAL_IN_CAPTURE |= {"memcpyAsync device to device", *"streamIsCapturing getDevice setDevice getDeviceCount".split()}
"""What may be called while a stream of the thread is being captured (CUDA Programming Guide, "Prohibited and Unhandled
Operations"; the runtime's documentation of each call). Among the others are all that wait or ask whether work is done,
copies with the host, and what takes memory or loads code: those CUDA lets pass in CuPy's mode of
capture, but a program that wants to be captured has done them before."""


WITHOUT_CONTEXT = "getDevice getDeviceCount getDeviceProperties deviceGetPCIBusId deviceCanAccessPeer runtimeGetVersion"
WITHOUT_CONTEXT = {*WITHOUT_CONTEXT.split()}
"""What asks about cards. All other calls make a context on the current card, which takes memory there, if that has none
yet; since CUDA 12 `setDevice` does, too. NCCL sees to its cards by itself."""


class CUDARuntimeError(RuntimeError):
    def __init__(self, name):
        super().__init__(f"{name}: {MESSAGES[name]}")
        self.name = name


class CUDADriverError(RuntimeError):
    """CuPy's class of what the driver says."""


class Machine:
    """``cards`` GPUs. ``peers``: pairs of cards that can reach each other's memory; all, unless given.

    ``capability`` of the cards, or of each in a list, and the CUDA ``version`` that is installed. ``broken`` names what
    does not work here: calls that always fail. ``garbled``: "copies" or "kernels", which use another card's memory
    without an error, but get something else, or "graphs", of which only the first card does its work if there are
    several; with " on 1" only those of card 1. ``fails``: a function of a call's number (from 1) and name, which says
    whether it fails. ``refuses``: by card the error for who would make a context there, or, if it is ECC's, asks about
    the card. ``contexts``: the cards that have one. ``ahead``: the most kernels, copies and graphs of a stream that
    nobody had waited for. ``times``: how many events with a time were recorded.
    """

    def __init__(
        self, cards=2, peers=None, capability=(9, 0), version=13000, broken=(), garbled=(), fails=None, refuses=None
    ):
        self.cards = cards
        pairs = itertools.permutations(range(cards), 2)
        self.peers = set(pairs if peers is None else (pair for a, b in peers for pair in ((a, b), (b, a))))
        self.capabilities = capability if isinstance(capability, list) else [capability] * cards
        self.version, self.fails = version, fails
        self.broken, self.garbled = set(broken), set(garbled)
        self.enabled = set()  # pairs (card, peer): code on the card may use the peer's memory
        self.refuses, self.contexts = refuses or {}, set()
        self.calls = collections.Counter()
        self.made = self.ahead = self.times = 0
        self.staged = []  # copies between cards that went through the host: (source, target, bytes)

    def garbles(self, what, card):
        """Whether a card's "copies", "kernels" or "graphs" that concern another card go wrong."""
        return not {what, f"{what} on {card}"}.isdisjoint(self.garbled)

    def reaches(self, card, peer):
        """Whether code on a card may use this memory."""
        return card == peer or (card, peer) in self.enabled


machine = Machine()
thread = threading.local()  # .card, the current one; .captures, which the thread has begun
lock = threading.RLock()


def start(new):
    """Let this machine be the one."""
    global machine
    machine, thread.card, thread.captures = new, 0, []


def current_card():
    return getattr(thread, "card", 0)


def call(name, capture=None):
    """Note a call to CUDA; raises what it would raise. ``capture``: of the stream that it concerns, if that has one."""
    with lock:
        machine.made += 1
        machine.calls[name] += 1
        captures = {capture, *getattr(thread, "captures", ())} - {None}
        for graph in captures:
            if graph.invalid and name not in ("streamEndCapture", "getDevice", "setDevice"):
                raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated")
            if name not in LEGAL_IN_CAPTURE:
                graph.invalid = True
                raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")
        if name in machine.broken or (machine.fails is not None and machine.fails(machine.made, name)):
            for graph in captures:
                graph.invalid = True
            raise CUDARuntimeError("cudaErrorUnknown")
        if name not in WITHOUT_CONTEXT and name != "setDevice" and not name.startswith("nccl"):
            _use_context(current_card())


def _use_context(card):
    if card not in machine.contexts:
        if card in machine.refuses:
            raise CUDARuntimeError(machine.refuses[card])
        machine.contexts.add(card)


def set_device(card):
    call("setDevice")
    if not 0 <= card < machine.cards:
        raise CUDARuntimeError("cudaErrorInvalidDevice")
    if machine.version >= 12000:
        _use_context(card)
    thread.card = card


def place_of(card):
    call("deviceGetPCIBusId")
    return f"0000:{card + 4:02X}:00.0"


def properties_of(card):
    call("getDeviceProperties")
    if machine.refuses.get(card) == "cudaErrorECCUncorrectable":
        raise CUDARuntimeError(machine.refuses[card])
    major, minor = machine.capabilities[card]
    uuid = hashlib.md5(f"{socket.gethostname()} {card}".encode()).digest().split(b"\0")[0]  # Cython's way with char[]
    return {"name": b"Stand-in", "major": major, "minor": minor, "uuid": uuid, "totalGlobalMem": 80 * 2**30}


def can_access_peer(card, peer):
    call("deviceCanAccessPeer")
    return int((card, peer) in machine.peers)


def enable_peer_access(peer):
    call("deviceEnablePeerAccess")
    pair = current_card(), peer
    if pair not in machine.peers:
        raise CUDARuntimeError("cudaErrorPeerAccessUnsupported")
    if pair in machine.enabled:
        raise CUDARuntimeError("cudaErrorPeerAccessAlreadyEnabled")
    machine.enabled.add(pair)


def disable_peer_access(peer):
    call("deviceDisablePeerAccess")
    pair = current_card(), peer
    if pair not in machine.enabled:
        raise CUDARuntimeError("cudaErrorPeerAccessNotEnabled")
    machine.enabled.remove(pair)
