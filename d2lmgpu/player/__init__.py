"""Films in a browser: one HTML file that plays what each device does when, and needs nothing else."""

from .page import Player, film_in, write_page

__all__ = ["Player", "film_in", "write_page"]
