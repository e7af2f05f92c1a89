"""Ways to split a training step. Each is a function that makes the `Plan` for k devices.

The easiest is data.py; pipelines.py shows what `compose` can do; zero.py and channels.py list their steps themselves.
"""

from collections.abc import Callable

from ..plan import Plan
from .channels import channels
from .data import data
from .pipelines import gpipe, layers, one_f_one_b, zero_bubble
from .zero import zero1, zero2, zero3

PLANS: dict[str, Callable[..., Plan]] = {
    "data": data,
    "layers": layers,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zero-bubble": zero_bubble,
    "channels": channels,
    "zero1": zero1,
    "zero2": zero2,
    "zero3": zero3,
}
"""The ways to split a training step, by name: functions that make a `Plan` for k devices and some micro-batches.

All other arguments are optional; without ``network`` the plans are for LeNet.
"""
