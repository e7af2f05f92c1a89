"""Draw splits.svg, the ways to split a training step, from the plans that carry them out.

python notebooks/images/draw_splits.py
"""

from pathlib import Path

import matplotlib

from d2lmgpu.plans import PLANS, draw_splits

matplotlib.rcParams.update({"svg.hashsalt": "d2lmgpu", "svg.fonttype": "none"})  # the same file on every run

ways = {"one device": PLANS["data"](1)} | {name: PLANS[name](2) for name in ("layers", "channels", "data")}
draw_splits(ways).savefig(Path(__file__).with_name("splits.svg"), metadata={"Date": None})
