"""Plans: a whole training step as data, a file a way to split it, beside what carries plans out."""

from ..language.plan import MOST_DEVICES, MOST_MICRO_BATCHES, Compute, Part, Plan, PlanError, Stage
from ..language.prove_plan import PlanProof
from ..language.prove_plan import prove_plan as prove
from .channels import channel_pairs, channels
from .compose import compose
from .cut import cut
from .data import data
from .draw import draw
from .execute import Execution, execute
from .gpipe import gpipe
from .html import play, write_html
from .layers import layers
from .measure import Measured, measure_costs, measure_messages
from .one_f_one_b import one_f_one_b
from .product import copies_of
from .simulate import PlanSimulation, estimate_costs, simulate
from .statistics import BATCH_STATISTICS, with_statistics
from .zero import zero1, zero2, zero3
from .zero_bubble import zero_bubble

PLANS = {
    "data": data,
    "layers": layers,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zero-bubble": zero_bubble,
    "channels": channels,
    "channel-pairs": channel_pairs,
    "zero1": zero1,
    "zero2": zero2,
    "zero3": zero3,
}
"""Ways to split a training step by name: functions of k devices and of micro-batches, which return a `Plan`.

Other arguments are optional: they are LeNet's plans unless ``network`` is given.
"""
