"""Films in a browser: one HTML file that plays what each device does when, and needs nothing else."""

from .page import Player as Player, film_in as film_in, write_page as write_page
