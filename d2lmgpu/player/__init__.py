"""Films in a browser: one HTML file that plays who does what when, and needs nothing else."""

from .page import film_in, write_page

__all__ = ["film_in", "write_page"]
