"""Films for a browser: one HTML file that shows what each device does at each time, and needs no other file.

A *film* is a dict that can be written as JSON. `plans.write_html` and `collectives.write_html` make films;
``player.js`` plays them, on a page of this kind or on any other: ``playFilm(film, element)``. Times are in ``unit``,
counted from 0 to ``end``.

    title       a string
    unit        "s", or "" where times have no unit
    end         the time when it is over
    facts       pairs of texts about the whole film, such as ["bubble", "27%"]
    devices     a name for each row
    kinds       {kind: [name, colour]}: the kinds of events that are drawn as boxes
    ways        {kind: [name, colour]}: the kinds of messages
    events      lists: [numbers of devices, kind, label, text, start, end]
    messages    lists: [source, destination, kind, text, bytes, start, end]
    marks       pairs of a time and a string: lines across all rows
    chart       {"name": text, "lines": for each device, a list of pairs of a time and the bytes from then on}
    holds       None, or {"columns": texts, "most": number, "states": pairs of a time and, from then on, for each device
                and column, a pair of a string and a number}: a table that changes
"""

import html
import re
from importlib import resources

from ..base.files import as_json_in_html, write_file
from ..base.text import legible


def write_page(film, file):
    """Write the page that plays a film, a dict as this module describes it, to ``file``. Raises OSError."""
    write_file(file, lambda opened: opened.write(_page(film).encode(errors="backslashreplace")))


class Player:
    """A film in a notebook: as the value of a cell, it is shown in a frame that holds the whole page.

    ``height``: the height of the frame in pixels; a taller page scrolls in it.
    """

    def __init__(self, film, height=None):
        self.film, self.height = film, height or _height_of(film)

    def __repr__(self):
        return f"<player of {self.film['title']}>"

    def _repr_html_(self):
        """A page in a frame of its own, so that several of them share neither names nor keys."""
        title, page = html.escape(legible(self.film["title"])), html.escape(_page(self.film))
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe title="{title}" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def _height_of(film):
    """A height in pixels that is enough for all but the table at the end, unless there are many devices."""
    k, tables = len(film["devices"]), 2 if film["holds"] else 1
    return min(1000, 460 + k * (50 if k <= 16 else 20) + tables * (60 + 30 * k))


def _page(film):
    folder = resources.files(__package__)
    text = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.html", "player.css", "player.js")}
    parts = {
        "TITLE": html.escape(legible(film["title"])),
        "STYLE": text["player.css"],
        "PLAYER": text["player.js"],
        "FILM": as_json_in_html(film),
    }
    return re.sub("{{(.*)}}", lambda part: parts[part[1]], text["page.html"])
