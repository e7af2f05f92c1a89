"""What all pictures have in common: colours, sizes, and texts that are drawn as they are."""

from ..base.text import legible

COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #000000 #999999 #8B5A2B".split()
"""Colours that colour-blind readers can tell apart, too (Okabe and Ito 2008, and two more)."""
BLUE, ORANGE = COLOURS[:2]
MARKERS = "os^vDP*X<"
LONGEST = 40
"""The most characters of a name at an axis."""


class AsTyped(str):
    """A label that is in a legend even if it is empty or begins with "_", which matplotlib would leave out."""

    def __new__(cls, name):
        return super().__new__(cls, name or " ")

    def __str__(self):
        return self

    def startswith(self, *prefix):
        return False


def figure_of(size, *grid, **more):
    """A `Picture` of ``size`` inches, and its axes as matplotlib's ``Figure.subplots(*grid, **more)`` returns them."""
    from .picture import Picture

    figure = Picture(figsize=size, layout="constrained")
    return figure, figure.subplots(*grid, **more)


def name_ticks(axis, places, names, **options):
    """Mark an axis with names that somebody gave: as they are, if they are not too long."""
    axis.set_ticks(places, [legible(name, LONGEST) for name in names], **options)
