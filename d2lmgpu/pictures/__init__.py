"""Figures and films: what people see of schedules, plans and training runs.

    plots       figures of training runs: losses and accuracies, what devices did when, confusion matrices
    schedules   figures of schedules: what devices hold and send, and how long algorithms take
    splits      a figure of the ways to split a step
    plans       a plan over time, as a figure and as a film
    films       the films of schedules; `play` shows films in notebooks
    player      what a film is, and the page that plays it in a browser

All figures come from `figure_of`, with the colours below, and show every name as it is.
"""

from ..base.text import legible

COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #000000 #999999 #8B5A2B".split()
"""Colours that colour-blind readers can tell apart, too (Okabe and Ito 2008, and two more)."""
BLUE, ORANGE = COLOURS[:2]
MARKERS = "os^vDP*X<"
LONGEST = 40
"""The most characters of a name at an axis."""


def legend_label(name):
    """``name``, after a space if it is empty or begins with "_": legends leave out what begins so."""
    return name if name and name[0] != "_" else f" {name}"


def figure_of(size, *grid, **more):
    """A `Picture` of ``size`` inches, and its axes as matplotlib's ``Figure.subplots(*grid, **more)`` returns them."""
    from .picture import Picture

    figure = Picture(figsize=size, layout="constrained")
    return figure, figure.subplots(*grid, **more)


def name_ticks(axis, places, names, **options):
    """Mark an axis with names that somebody gave: as they are, if they are not too long."""
    axis.set_ticks(places, [legible(name, LONGEST) for name in names], **options)
