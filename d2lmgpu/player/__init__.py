"""Films for a browser: one HTML file that shows what each device does at each time, and needs no other file."""

from .page import Player as Player, write_page as write_page
