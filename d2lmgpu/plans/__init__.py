"""Plans, which describe a whole training step as data: a file for each way to split it, and modules that use plans."""

from ..language.plan import (
    MOST_DEVICES as MOST_DEVICES,
    MOST_MICRO_BATCHES as MOST_MICRO_BATCHES,
    Compute as Compute,
    Part as Part,
    Plan as Plan,
    PlanError as PlanError,
    Stage as Stage,
)
from ..language.prove_plan import PlanProof as PlanProof, prove_plan as prove_plan
from .by_name import PLANS as PLANS
from .channels import channels as channels
from .compose import compose as compose
from .cut import cut as cut
from .data import data as data
from .draw import draw as draw
from .draw_splits import draw_splits as draw_splits
from .execute import Execution as Execution, execute as execute
from .gpipe import gpipe as gpipe
from .html import play as play, write_html as write_html
from .layers import layers as layers
from .measure import Measured as Measured, measure_costs as measure_costs, measure_messages as measure_messages
from .one_f_one_b import one_f_one_b as one_f_one_b
from .product import copies_of as copies_of
from .simulate import PlanSimulation as PlanSimulation, estimate_costs as estimate_costs, simulate as simulate
from .zero import zero1 as zero1, zero2 as zero2, zero3 as zero3
from .zero_bubble import zero_bubble as zero_bubble

prove = prove_plan
