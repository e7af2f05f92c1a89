"""Figures that show all texts as they are. This module imports matplotlib, so it is imported only for drawing."""

import warnings

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from ..base.text import legible

LETTERS, NARROW = 10, 6.0
"""The most letters on an inch of a figure's width, of at least so many inches: more would leave no room for plots."""


class Picture(Figure):
    """A figure in which "$", "\\" and "_" are nothing but characters, whatever the user's matplotlibrc says.

    Matplotlib's mathematics is left to axes that show numbers, for powers of ten. What is not text is escaped, and a
    character that no font has is drawn as a box. There are no warnings of that, or of texts that have no room.
    """

    def draw(self, renderer):
        with rc_context({"text.usetex": False}), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            axes = [axis for axes in self.axes for axis in (axes.xaxis, axes.yaxis)]
            numbers = [axis for axis in axes if not isinstance(axis.get_major_formatter(), FuncFormatter)]
            powers = {label for axis in numbers for label in axis.get_ticklabels(which="both")}
            most = int(LETTERS * max(NARROW, self.get_figwidth()))
            for text in self.findobj(Text):
                said = "\n".join(legible(line, most) for line in text.get_text().split("\n"))
                text.set(text=said, usetex=False, parse_math=text in powers)
            super().draw(renderer)
