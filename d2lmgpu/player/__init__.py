"""Films in a browser: one HTML file that plays what each device does when, and needs nothing else."""

from .page import Player as Player, write_page as write_page
