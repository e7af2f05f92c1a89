"""The ring allreduce of four devices as a moving picture: SVG and CSS, made from the library's schedule.

Each device has a column for each chunk of its gradients, and in it a segment for each device whose gradients the chunk
has. What a transfer sends flies over, and stays. Nothing moves for readers who have asked for that; a box stops it.
"""

from d2lmgpu.collectives import ring

K = 4
STEP, BEFORE, AFTER = 1.3, 1.2, 2.4
"""Seconds: of a step, of what is seen before the first, and after the last."""

COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7"]
"""Of Okabe and Ito's palette, whose colours the colour-blind tell apart: for each device that of its gradients."""

WIDTH, HEIGHT = 152, 122
PLACES = [(8, 30), (360, 30), (360, 250), (8, 250)]
"""The upper left corners of the devices' boxes, so that a ring's neighbours stand beside or below each other."""


def picture():
    """The HTML of the picture, with a style sheet of its own."""
    schedule = ring(K, K)
    held, drawn, flying = [[{i} for _ in range(K)] for i in range(K)], [], []
    for i in range(K):
        drawn.append(_box(i) + "".join(_segment(i, chunk, i, "") for chunk in range(K)))
    for number, step in enumerate(schedule):
        before = [[set(has) for has in device] for device in held]
        for transfer in step:
            source, destination, chunk = transfer.source, transfer.destination, transfer.start
            sent = before[source][chunk]
            flying.append(_message(source, destination, chunk, sent, number))
            new = sent - held[destination][chunk]
            drawn += [_segment(destination, chunk, share, f"ring-after-{number}") for share in sorted(new)]
            held[destination][chunk] |= sent
    assert all(has == set(range(K)) for device in held for has in device), "each device ends with the sum"
    says = ["each device has its own gradients"]
    says += [f"step {number} of {len(schedule)}: {step[0].op} a chunk" for number, step in enumerate(schedule, 1)]
    says += ["all devices have the sum"]
    words = [f'<text class="ring-says ring-when-{i}" x="260" y="206">{text}</text>' for i, text in enumerate(says)]
    body = "".join([*map(_wire, range(K)), *drawn, *flying, *words])
    return PICTURE.replace("STYLE", _style(len(schedule))).replace("BODY", body)


def _box(i):
    x, y = PLACES[i]
    return (
        f'<rect class="ring-box" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="10"/>'
        f'<text x="{x + WIDTH / 2}" y="{y + 22}">device {i}</text>'
        + "".join(f'<rect class="ring-room" {_place(i, chunk, share)}/>' for chunk in range(K) for share in range(K))
    )


def _place(i, chunk, share):
    x, y = PLACES[i]
    return f'x="{x + 13 + 33 * chunk}" y="{y + 94 - 20 * share}" width="27" height="17" rx="3"'


def _segment(i, chunk, share, name):
    return f'<rect class="{name}" {_place(i, chunk, share)} fill="{COLOURS[share]}"/>'


def _message(source, destination, chunk, shares, number):
    dx, dy = (there - here for here, there in zip(PLACES[source], PLACES[destination], strict=True))
    segments = "".join(_segment(source, chunk, share, "ring-sent") for share in sorted(shares))
    return f'<g class="ring-flies-{number}" style="--x: {dx}px; --y: {dy}px">{segments}</g>'


def _wire(i):
    ends = [(PLACES[j][0] + WIDTH / 2, PLACES[j][1] + HEIGHT / 2) for j in (i, (i + 1) % K)]
    (x1, y1), (x2, y2) = ends
    at, to = ((WIDTH / 2 + 4) * ((x2 > x1) - (x2 < x1)), (HEIGHT / 2 + 4) * ((y2 > y1) - (y2 < y1)))
    return (
        f'<line class="ring-wire" x1="{x1 + at}" y1="{y1 + to}" x2="{x2 - at}" y2="{y2 - to}"'
        ' marker-end="url(#ring-head)"/>'
    )


def _style(steps):
    """What changes when, in per cent of the whole."""
    whole = BEFORE + steps * STEP + AFTER
    starts = [100 * (BEFORE + number * STEP) / whole for number in range(steps + 1)]
    rules = []
    for number, (start, end) in enumerate(zip(starts, starts[1:], strict=False)):
        rules.append(_rule(f"flies-{number}", _shown(start, end - 1, " transform: none;", MOVED)))
        rules.append(_rule(f"after-{number}", _shown(end - 1, 100)))
    for number, (start, end) in enumerate(zip([0, *starts], [*starts, 100], strict=True)):
        rules.append(_rule(f"when-{number}", _shown(start, end)))
    return "".join(rules) + STILL.replace("LAST", str(steps + 1)).replace("SECONDS", f"{whole:.1f}")


def _shown(start, end, first="", last=""):
    """Keyframes of what is seen from ``start`` to ``end``."""
    hidden = f"0%, {start:.2f}% {{ opacity: 0;{first} }} " if start else ""
    gone = f" {end + 0.01:.2f}%, 100% {{ opacity: 0;{last} }}" if end < 100 else ""
    return (
        f"{hidden}{start + 0.01 * bool(start):.2f}% {{ opacity: 1;{first} }} {end:.2f}% {{ opacity: 1;{last} }}{gone}"
    )


def _rule(name, frames):
    return f"@keyframes ring-{name} {{ {frames} }} .ring-{name} {{ animation-name: ring-{name}; }}\n"


MOVED = " transform: translate(var(--x), var(--y));"

STILL = """.ring [class^="ring-flies"], .ring-says:not(.ring-when-LAST) { opacity: 0; }
.ring [class*="ring-flies-"], .ring [class*="ring-after-"], .ring [class*="ring-when-"] {
  animation-duration: SECONDSs; animation-timing-function: ease-in-out; animation-iteration-count: infinite; }
.ring:has(:checked) * { animation-play-state: paused !important; }
@media (prefers-reduced-motion: reduce) { .ring * { animation: none !important; } .ring label { display: none; } }
"""

PICTURE = """<figure class="ring">
<style>
STYLE</style>
<svg viewBox="0 0 520 400" role="img" aria-label="Four devices in a ring. In three steps each adds a chunk of its
gradients to its neighbour's, in three more it copies finished chunks on; then all have the sum of all gradients.">
<defs><marker id="ring-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 8 4 0 8z"/></marker></defs>
BODY
</svg>
<figcaption>A ring allreduce, drawn from the schedule that trains: a colour is one device's gradients.
<a href="player.html">More in the player</a>. <label><input type="checkbox" /> pause</label></figcaption>
</figure>"""
