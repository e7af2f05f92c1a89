"""Draw ring.svg, the ring allreduce of four devices, step by step, as a picture that moves.

python notebooks/images/draw_ring.py

What moves is the library's own schedule, and what each device holds is counted from it. The file is an SVG with CSS: it
takes the colours of the reader's theme, and stands still, with the result, for those who want less motion. The
website's first page contains it, too, so its rules apply to nothing outside the element of class ring.
"""

from pathlib import Path

from d2lmgpu.collectives import ALGORITHMS
from d2lmgpu.pictures.schedules import states_of

K = 4
PLACES = ((20, 56), (420, 56), (420, 248), (20, 248))
"""The left upper corners of the devices' boxes, clockwise."""
WIDTH, HEIGHT, BOX = 640, 424, (200, 156)
CELL = 27
"""A share's square; the shares of a chunk are a row."""
START, STEP, TRAVEL, END = 1.2, 1.7, 1.2, 3.0
"""Seconds: before the first step, of each step, of its messages, and after the last."""
OPS = {"add": "added to what is there", "copy": "copied"}

PALETTES = {
    "light": {"paper": "#fff", "ink": "#1b1d21", "quiet": "#5a606b", "line": "#c3c8d0", "box": "#f3f4f7"}
    | {"add": "#0072b2", "copy": "#b34a00"},
    "dark": {"paper": "#14171c", "ink": "#eceef2", "quiet": "#a6adb8", "line": "#4a515c", "box": "#20252d"}
    | {"add": "#6cc0f5", "copy": "#f5a35c"},
}
"""The colours by the reader's theme. The website, which has themes of its own, takes those of ``add`` and ``copy``."""

STYLE = """
.ring{LIGHT;
font:15px system-ui,-apple-system,"Segoe UI",sans-serif}
@media(prefers-color-scheme:dark){.ring{DARK}}
.ring text{fill:var(--ink)}
.ring .quiet{fill:var(--quiet);font-size:13px}
.ring .paper{fill:var(--paper);stroke:var(--line)}
.ring .box{fill:var(--box);stroke:var(--line)}
.ring .way{stroke:var(--line);stroke-width:2;fill:none}
.ring .tip{fill:var(--line)}
.ring .cell{fill:none;stroke:var(--line)}
.ring .in-box{text-anchor:middle;font-size:14px;fill:#1b1d21}
.ring .d0{fill:#8fd3b6}.ring .d1{fill:#f4c77b}.ring .d2{fill:#a9cdeb}.ring .d3{fill:#e3b4cf}
.ring .add .frame{stroke:var(--add)}.ring .copy .frame{stroke:var(--copy)}
.ring .frame{fill:var(--paper);stroke-width:3}
.ring .add.said{fill:var(--add)}.ring .copy.said{fill:var(--copy)}
.ring .said{font-size:17px;font-weight:600;text-anchor:middle}
.ring .sent,.ring .said{opacity:0}.ring .said.last{opacity:1}
@media(prefers-reduced-motion:no-preference){
.ring .new,.ring .sent,.ring .said,.ring .said.last{animation:SECONDSs linear infinite;opacity:0}
KEYFRAMES
}
"""


def drawn():
    """The SVG."""
    *_, schedule, cuts, states = states_of(ALGORITHMS["ring"](K, K), K, K)
    begins = [START + STEP * number for number in range(len(schedule))]
    seconds = begins[-1] + STEP + END
    parts = [
        f'<rect class="paper" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10"/>',
        *(part for device in range(K) for part in _device(device, states)),
        *_words(schedule),
        *(part for number, step in enumerate(schedule) for t in step for part in _message(number, t, states)),
    ]
    style = STYLE.replace("SECONDS", f"{seconds:g}").replace("KEYFRAMES", "\n".join(_keyframes(begins, seconds)))
    for theme, palette in PALETTES.items():
        style = style.replace(theme.upper(), ";".join(f"--{name}:{colour}" for name, colour in palette.items()))
    title = "The ring allreduce of four devices"
    what = (
        "Each device has an array of four chunks. In three steps it sends one chunk to its neighbour, which adds it to "
        "its own; in three more the complete sums are copied on, until every device has all of them."
    )
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    names = 'aria-labelledby="ring-title ring-what"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} class="ring" role="img" {names}>'
    named = f'<title id="ring-title">{title}</title><desc id="ring-what">{what}</desc>'
    return "\n".join([head, named, f"<style>{style}</style>", *parts, "</svg>", ""])


def _place(device, chunk):
    """The left upper corner of what a device holds of a chunk."""
    x, y = PLACES[device]
    return x + 76, y + 32 + chunk * (CELL + 2)


def _shares(chunk_counts, x, y, known=()):
    """The squares of the shares that are there, but of those that are ``known``, with the devices' numbers."""
    for share in [share for share, count in enumerate(chunk_counts) if count and share not in known]:
        left = x + share * CELL
        yield f'<rect class="d{share}" x="{left}" y="{y}" width="{CELL}" height="{CELL}"/>'
        yield f'<text class="in-box" x="{left + CELL / 2:g}" y="{y + 19}">{share}</text>'


def _device(device, states):
    """A device's box, an arrow to the next one, and what it holds: at the start, and from which step on."""
    (x, y), (wide, high) = PLACES[device], BOX
    yield f'<rect class="box" x="{x}" y="{y}" width="{wide}" height="{high}" rx="6"/>'
    yield f'<text x="{x + 12}" y="{y + 22}">device {device}</text>'
    for chunk in range(K):
        left, top = _place(device, chunk)
        yield f'<text class="quiet" x="{left - 8}" y="{top + 18}" text-anchor="end">chunk {chunk}</text>'
        yield f'<rect class="cell" x="{left}" y="{top}" width="{K * CELL}" height="{CELL}"/>'
        yield from _shares(states[0][device, chunk], left, top)
        for number, (before, after) in enumerate(zip(states, states[1:], strict=False)):
            new = "".join(_shares(after[device, chunk], left, top, known=before[device, chunk].nonzero()[0]))
            if new:
                yield f'<g class="new new-{number}">{new}</g>'
    (x, y), (to_x, to_y) = _middle(device), _middle((device + 1) % K)
    along = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
    start, end = (
        (at[0] + s * along[0] * (wide / 2 + 8), at[1] + s * along[1] * (high / 2 + 6))
        for at, s in (((x, y), 1), ((to_x, to_y), -1))
    )
    yield f'<path class="way" d="M{start[0]:g} {start[1]:g}L{end[0]:g} {end[1]:g}"/>'
    tip = [(end[0] - 10 * along[0] + s * 6 * along[1], end[1] - 10 * along[1] + s * 6 * along[0]) for s in (1, -1)]
    yield f'<path class="tip" d="M{end[0]:g} {end[1]:g}L{tip[0][0]:g} {tip[0][1]:g} {tip[1][0]:g} {tip[1][1]:g}z"/>'


def _middle(device):
    return PLACES[device][0] + BOX[0] / 2, PLACES[device][1] + BOX[1] / 2


def _words(schedule):
    yield _said("first", "Each device has its own share, 0 to 3, of each chunk")
    for number, step in enumerate(schedule):
        said = f"Step {number + 1} of {len(schedule)}: one chunk to the neighbour, {OPS[step[0].op]}"
        yield _said(f"{step[0].op} said-{number}", said)
    yield _said("last", "Every device has the sum of all shares of every chunk")


def _said(kind, text):
    return f'<text class="said {kind}" x="{WIDTH / 2:g}" y="34">{text}</text>'


def _message(number, t, states):
    """A chunk on its way: what its device held before the step."""
    x, y = _place(t.source, t.start)
    to_x, to_y = _place(t.destination, t.start)
    frame = f'<rect class="frame" x="{x - 2}" y="{y - 2}" width="{K * CELL + 4}" height="{CELL + 4}" rx="3"/>'
    shares = "".join(_shares(states[number][t.source, t.start], x, y))
    yield f'<g class="sent sent-{number} {t.op}" style="--x:{to_x - x}px;--y:{to_y - y}px">{frame}{shares}</g>'


def _keyframes(begins, seconds):
    """For each step: when its words are seen, its messages travel, and what they bring is there."""

    def part(time):
        return f"{100 * time / seconds:.2f}%"

    def seen(name, begin, end):
        hidden = f"0%,{part(begin - 0.01)}{{opacity:0}}" if begin else ""
        over = f"{part(end)},100%{{opacity:0}}" if end < seconds else ""
        return _moved(name, f"{hidden}{part(begin)},{part(end - 0.01)}{{opacity:1}}{over}")

    for number, begin in enumerate(begins):
        arrived = begin + TRAVEL
        yield seen(f"new-{number}", arrived, seconds)
        yield seen(f"said-{number}", begin, begin + STEP)
        there = "transform:translate(var(--x),var(--y))"
        yield _moved(
            f"sent-{number}",
            f"0%,{part(begin - 0.01)}{{opacity:0;transform:none}}"
            f"{part(begin)}{{opacity:1;transform:none;animation-timing-function:ease-in-out}}"
            f"{part(arrived)}{{opacity:1;{there}}}{part(arrived + 0.01)},100%{{opacity:0;{there}}}",
        )
    yield seen("first", 0, begins[0])
    yield seen("last", begins[-1] + STEP, seconds)


def _moved(name, frames):
    """The rule of what has this class, and its key frames."""
    return f"@keyframes ring-{name}{{{frames}}}.ring .{name}.{name}{{animation-name:ring-{name}}}"


if __name__ == "__main__":
    Path(__file__).with_name("ring.svg").write_text(drawn(), "utf-8")
