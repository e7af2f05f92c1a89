"""Plans, which describe a whole training step as data: a file for each way to split it, and modules that use plans."""

from ..base.packages import looked_up
from .execution.execute import Execution as Execution, execute as execute
from .plan import (
    Compute as Compute,
    Part as Part,
    Plan as Plan,
    PlanError as PlanError,
    Stage as Stage,
)
from .proof.prove import PlanProof as PlanProof, prove as prove
from .simulate import PlanSimulation as PlanSimulation, estimate_costs as estimate_costs, simulate as simulate
from .splits import (
    PLANS as PLANS,
    channels as channels,
    data as data,
    gpipe as gpipe,
    layers as layers,
    one_f_one_b as one_f_one_b,
    zero1 as zero1,
    zero2 as zero2,
    zero3 as zero3,
    zero_bubble as zero_bubble,
)
from .splits.compose import compose as compose
from .splits.data import copies_of as copies_of
from .stages import cut as cut

__getattr__, __dir__ = looked_up(
    __name__, {"..pictures.plans": "draw write_html", "..pictures.splits": "draw_splits", "..pictures.films": "play"}
)
