"""Pages that play plans and schedules: what is in them is what was simulated, and a browser plays it."""

import base64
import json
import re
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from chromium import find_chromium
from conftest import few
from test_plan_readers import DENSE

import d2lmgpu as d2l
from d2lmgpu import collectives, plans
from d2lmgpu.base.text import legible
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.pictures.films import bars_of, handed_on
from d2lmgpu.pictures.player import write_page
from d2lmgpu.plans import PLANS

COSTS = {"F": 1e-3, "B": 2e-3, "I": 1.25e-3, "W": 5e-4, "update": 1e-4}


def film_in(page):
    """The film in the text of a page."""
    return json.loads(page.split('<script id="film" type="application/json">')[1].split("</script>")[0])


@pytest.mark.parametrize("name", few(PLANS, "1f1b", "zero3"))
@pytest.mark.parametrize("k", [1, 3])
def test_a_plans_page_has_what_was_simulated(name, k, tmp_path):
    plan = PLANS[name](k, 4)
    arguments = full_switch(k, 1e9, latency=1e-5), COSTS
    plans.write_html(plan, tmp_path / "plan.html", *arguments, batch_size=50)
    film, told = film_in((tmp_path / "plan.html").read_text()), plans.simulate(plan, *arguments, batch_size=50)
    events = [[[event.action.device], str(event.action), event.start, event.end] for event in told.events]
    bars = [[[device], film["kinds"][kind][0], start, end] for device, kind, start, end in bars_of(told)]
    assert [[devices, text, *times] for devices, _, _, text, *times in film["events"]] == events + bars
    assert film["messages"] == [
        [m.action.source, m.action.destination, m.action.value[0], str(m.action), m.nbytes, m.start, m.end]
        for m in handed_on(told)
    ]
    is_pipeline = name in ("layers", "gpipe", "1f1b", "zero-bubble")
    assert bool(film["messages"]) == (k > 1 and is_pipeline) and bool(bars) == (k > 1 and not is_pipeline)
    assert film["chart"]["lines"] == [[list(point) for point in line] for line in told.memory]
    assert film["end"] == told.seconds and film["unit"] == "s" and len(film["devices"]) == k
    assert {event[1] for event in film["events"]} == {*film["kinds"]}


@pytest.mark.parametrize("algorithm, k, n", [("ring", 3, 10), ("naive", 4, 7), ("tree", 5, 3), ("ring", 1, 4)])
def test_a_schedules_page_has_its_transfers(algorithm, k, n, tmp_path):
    schedule, network = collectives.ALGORITHMS[algorithm](k, n), full_switch(max(k, 2), 1e6, latency=1e-3)
    collectives.write_html(schedule, k, n, tmp_path / "a.html", network, itemsize=8, title=algorithm)
    film, told = film_in((tmp_path / "a.html").read_text()), collectives.simulate(schedule, network, 8)
    assert film["end"] == pytest.approx(told.seconds)
    expected = [[t.source, t.destination, t.op, 8 * t.size] for step in schedule for t in step]
    assert [[*message[:3], message[4]] for message in film["messages"]] == expected
    times = [[start, end] for pair in told.times for start, end in zip(*pair, strict=True)]
    assert [message[5:] for message in film["messages"]] == times
    sent = [sum(m[4] for m in film["messages"] if m[0] == i) for i in range(k)]
    assert [line[-1][1] for line in film["chart"]["lines"]] == sent
    _, end = film["holds"]["states"][-1]
    everybody = " ".join(map(str, range(k)))
    assert all(cell == [everybody, k] for row in end for cell in row)


def test_without_a_network_each_step_takes_one(tmp_path):
    collectives.write_html(collectives.ring(4, 8), 4, 8, tmp_path / "a.html")
    film = film_in((tmp_path / "a.html").read_text())
    assert film["end"] == 6 and film["unit"] == "" and film["marks"][-1] == [5, "step 6"]


EVIL = "</script><script>document.title='broken'</script><!-- & \u2028 {{FILM}} \"'"


def test_whatever_the_texts_are(tmp_path):
    """Nothing in a film ends its script, nothing is fetched from elsewhere, and no number breaks the JSON."""
    collectives.write_html(collectives.ring(2, 4), 2, 4, tmp_path / "a.html", title=EVIL)
    page = (tmp_path / "a.html").read_text()
    assert film_in(page)["title"].startswith(EVIL)
    assert page.count("</script>") == 2 and "<script>document.title" not in page
    loaded = re.findall(r"(?:src|href)\s*=|@import|url\(|fetch\(|import\(", page)
    assert not loaded and "http" not in page.replace("http://www.w3.org/", "")
    film = {"title": "a</script>\udcff", "end": float("nan"), "events": np.array([1.5, np.inf])}
    write_page(film, tmp_path / "b.html")
    assert film_in((tmp_path / "b.html").read_text("utf-8")) == film | {"end": None, "events": [1.5, None]}


class Frames(HTMLParser):
    """What a browser makes of a page: the attributes of each frame, and how many other elements there are."""

    def __init__(self, page):
        super().__init__()
        self.found, self.others = [], 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag == "iframe":
            self.found.append(dict(attrs))
        else:
            self.others += 1


def test_a_notebook_plays_schedules_and_plans():
    """Each in a frame of its own that holds the page which write_html writes: two share no names, and fetch nothing."""
    plan, schedule = PLANS["1f1b"](2, 2, network=DENSE), collectives.ring(3, 7)
    cells = [
        d2l.play(schedule, title=EVIL),
        d2l.play(plan, full_switch(2, 50), batch_size=2),
        d2l.play([], k=2, n=3, height=123),
    ]
    page = Frames("<p>".join(cell._repr_html_() for cell in cells))
    assert len(page.found) == 3 and page.others == 2
    for cell, frame in zip(cells, page.found, strict=True):
        assert frame.keys() == {"title", "sandbox", "style", "srcdoc"}
        assert film_in(frame["srcdoc"]) == json.loads(json.dumps(cell.film))
        assert frame["title"] == legible(cell.film["title"]) and cell.film["title"] in repr(cell)
        assert "http" not in frame["srcdoc"].replace("http://www.w3.org/", "")
        assert frame["srcdoc"].count('id="player"') == 1 and f"height: {cell.height}px" in frame["style"]
    told = plans.simulate(plan, full_switch(2, 50), batch_size=2)
    assert cells[1].film["end"] == told.seconds and cells[1].film["unit"] == "s"
    assert len(cells[0].film["devices"]) == 3 and cells[0].film["holds"]["columns"] == ["0–2", "3–4", "5–6"]
    assert len(cells[2].film["devices"]) == 2 and cells[2].height == 123


@pytest.mark.parametrize(
    "what, options, said",
    [
        (collectives.ring(3, 6), {"k": 2}, "names a device that is not among"),
        (collectives.ring, {}, "should be a list of steps"),
        (PLANS["data"](2, 1, network=DENSE)._replace(micro_batches=3), {}, "missing"),
    ],
)
def test_what_cannot_be_played(what, options, said):
    with pytest.raises(ValueError, match=said):
        d2l.play(what, **options)


DRIVE = """
<script>
const player = document.getElementById("player").player, seen = [];
const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const look = () => seen.push([player.time, player.playing, player.now.map((cells) => cells.does.textContent),
  player.flying.childElementCount, player.said.textContent]);
look();
for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home", " "]) { press(key); look(); }
press(" ");
go(player, MIDDLE); look();
document.querySelector("details").open = true;
setTimeout(() => {
  const rows = document.querySelectorAll("details tr").length;
  const boxes = document.querySelectorAll("rect.box").length;
  const wide = document.documentElement.scrollWidth;
  const text = btoa(JSON.stringify({ seen, rows, boxes, wide }));
  document.body.replaceChildren(Object.assign(document.createElement("pre"), { id: "found", textContent: text }));
}, 200);
</script>
</body>"""


def driven(file, script, width=1000):
    """What a browser finds that opens the page with a script added to it. Skips the test where there is none."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no chromium, the browser of this test")
    file.write_text(file.read_text().replace("</body>", script))
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={file.parent / 'profile'}"]
    command += [f"--window-size={width},900", "--virtual-time-budget=3000", "--dump-dom", file.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    return json.loads(base64.b64decode(re.search(r'<pre id="found">(.*?)</pre>', dom)[1]))


@pytest.mark.parametrize("width", few([1000, 600], 1000))
def test_a_browser_plays_it(width, tmp_path):
    """Drives a browser: keys step and play, devices do then what was simulated, nothing is wider than the page."""
    plan = PLANS["gpipe"](2, 2, network=DENSE)
    arguments = full_switch(2, 20, latency=0.5), {"F": 1, "B": 2}
    plans.write_html(plan, tmp_path / "plan.html", *arguments, batch_size=2)
    told = plans.simulate(plan, *arguments, batch_size=2)
    computed = [event for event in told.events if event.action.what in "FB"]
    first = next(m for m in told.messages if m.end > m.start)
    middle = (first.start + first.end) / 2
    found = driven(tmp_path / "plan.html", DRIVE.replace("MIDDLE", repr(middle)), width)

    def at(time):
        doing = [str(e.action) for i in (0, 1) for e in computed if e.action.device == i and e.start <= time < e.end]
        return doing, sum(m.start <= time < m.end for m in told.messages)

    moments = sorted({0, *(t for e in (*computed, *told.messages) for t in (e.start, e.end))})
    begin, one, two, back, end, home, playing, paused = found["seen"]
    assert [seen[0] for seen in (begin, one, two, back, end, home)] == [
        0,
        moments[1],
        moments[2],
        moments[1],
        told.seconds,
        0,
    ]
    assert playing[1] and not paused[1]
    for time, _, does, flying, _ in found["seen"]:
        doing = [text for text in does if text not in ("waits", "has finished")]
        assert (doing, flying) == at(time)
    assert at(middle)[1] >= 1 and end[2] == ["has finished"] * 2
    assert "F of stage 0, micro-batch 1" in one[4] and "Time 1.00 s of" in one[4]
    assert found["rows"] == 1 + len(told.events) + len(told.messages)
    assert found["boxes"] == sum(1 for e in told.events if e.action.what in ("F", "B", "update"))
    assert found["wide"] <= width


def test_a_browser_plays_a_schedule(tmp_path):
    """Drives a browser: the title is the text that was given, however evil."""
    collectives.write_html(collectives.naive(3, 7), 3, 7, tmp_path / "a.html", title=EVIL)
    script = """<script>
    const player = document.getElementById("player").player;
    go(player, 1.5);
    const holds = player.holds.map((row) => row.map((cell) => cell.textContent));
    const found = { holds, flying: player.flying.childElementCount, heading: document.querySelector("h1").textContent };
    document.body.innerHTML = '<pre id="found">' + btoa(unescape(encodeURIComponent(JSON.stringify(found)))) + "</pre>";
    </script></body>"""
    found = driven(tmp_path / "a.html", script)
    assert found == {"holds": [["0 1"], ["1"], ["2"]], "flying": 1, "heading": found["heading"]}
    assert found["heading"].startswith(EVIL)
