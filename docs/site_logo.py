"""The logo: `python docs/site_logo.py` writes site/logo.svg, a ring of four devices, which is each page's icon."""

from math import cos, pi, sin
from pathlib import Path

FILE = Path(__file__).parent / "site" / "logo.svg"
ACCENT = "#0072B2"


def logo():
    """SVG that is seen on light and on dark: four devices of a ring, and between them the ways of their messages."""
    ring = [(32 + 17 * cos(angle), 32 + 17 * sin(angle)) for angle in (pi * (i / 2 - 3 / 4) for i in range(4))]
    ways = "".join(f"{'M' if i == 0 else 'L'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(ring)) + "Z"
    devices = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7.5"/>' for x, y in ring)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64">'
        f'<rect width="64" height="64" rx="14" fill="{ACCENT}"/>'
        f'<path d="{ways}" fill="none" stroke="#ffffff" stroke-width="4"/>'
        f'<g fill="#ffffff">{devices}</g></svg>\n'
    )


if __name__ == "__main__":
    FILE.write_text(logo(), "utf-8")
