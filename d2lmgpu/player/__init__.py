"""Films in a browser: one HTML file that plays who does what when, and needs nothing else."""

from .page import Player, film_in, write_page

__all__ = ["Player", "film_in", "write_page"]
