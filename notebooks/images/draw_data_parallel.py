"""Draw data_parallel.svg, the picture of one training step on two devices.

python notebooks/images/draw_data_parallel.py
"""

from pathlib import Path

import matplotlib

matplotlib.rcParams["svg.hashsalt"] = "d2lmgpu"  # the same file on every run
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import FancyBboxPatch  # noqa: E402

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"


def box(axes, x, y, width, text, colour, height=0.62):
    corner = (x - width / 2, y - height / 2)
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0.06", fc="white", ec=colour, lw=1.6))
    axes.text(x, y, text, ha="center", va="center", fontsize=10)


def arrow(axes, start, end, colour, style="-|>"):
    axes.annotate("", end, start, arrowprops={"arrowstyle": style, "color": colour, "lw": 1.6, "mutation_scale": 14})


def main():
    figure = Figure(figsize=(9, 4.9))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 12), ylim=(0, 6.6), aspect="auto")
    axes.axis("off")
    left, right = 4.4, 9.4
    for x, name, colour in ((left, "device 0", BLUE), (right, "device 1", ORANGE)):
        corner = (x - 1.75, 0.25)
        axes.add_patch(FancyBboxPatch(corner, 3.5, 4.7, boxstyle="round,pad=0.1", fc=colour, ec="none", alpha=0.08))
        edge, side = (x - 1.8, "left") if x == left else (x + 1.8, "right")
        axes.text(edge, 5.12, name, ha=side, va="bottom", fontsize=11, color=colour, weight="bold")
        box(axes, x, 4.5, 2.9, "its shard of X, y", colour)
        box(axes, x, 3.2, 2.9, "loss and gradients\nfrom its own parameters", colour, height=0.8)
        box(axes, x, 1.9, 2.9, "sum of all gradients", colour)
        box(axes, x, 0.65, 2.9, "its own parameters, updated", colour)
        for top, bottom in ((4.13, 3.68), (2.74, 2.27), (1.53, 1.02)):
            arrow(axes, (x, top), (x, bottom), colour)
        arrow(axes, (6.9, 5.8), (x, 4.87), GREY)
    box(axes, 6.9, 6.1, 2.6, "minibatch X, y", GREY, height=0.5)
    arrow(axes, (left + 1.55, 1.9), (right - 1.55, 1.9), GREY, "<|-|>")
    for y, name in ((5.45, "split_batch"), (3.2, "loss_and_grads"), (1.9, "allreduce"), (0.65, "sgd")):
        axes.text(0.25, y, name, va="center", fontsize=11, family="monospace", color=GREY)
    figure.savefig(Path(__file__).with_name("data_parallel.svg"), metadata={"Date": None})


main()
