"""What becomes of devices in a forked process: a copy of this one that has its memory, but only one of its threads.

Queues and locks are begun anew there. Work that was under way is the parent's: its tasks fail in the child, instead of
never being done. On CPUs that is all; CUDA does not survive a fork, so a child's GPUs are gone.
"""

import os
import weakref

from .errors import DeviceError

_renewed = weakref.WeakSet()


def renew(thing):
    """Have ``thing.after_fork()`` called in forked processes; it returns tasks that will never be done there."""
    _renewed.add(thing)


def in_forked_process(function):
    """Have ``function()`` called in forked processes, on platforms that have them."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function


@in_forked_process
def _renew_all():
    tasks = [task for thing in _renewed for task in thing.after_fork()]
    for task in tasks:
        task.abandon(DeviceError("this process was forked while that work was under way: it is the parent's"))
