"""Devices in a forked process, which has a copy of the parent's memory, but only one thread.

Queues and locks are renewed there. Work that was under way stays with the parent: in the child its tasks fail, so that
waiting for them ends. CPUs need nothing else. CUDA does not survive a fork, so a child cannot use GPUs.
"""

import os
import weakref

_renewed = weakref.WeakSet()


def renew(thing):
    """Have ``thing.after_fork()`` called in forked processes."""
    _renewed.add(thing)


def in_forked_process(function):
    """A decorator: have ``function()`` called in every forked process, on platforms that can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function


@in_forked_process
def _renew_all():
    for thing in _renewed:
        thing.after_fork()
