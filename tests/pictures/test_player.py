"""Pages that play plans and schedules: what is in them is what was simulated, and a browser plays it."""

import base64
import html
import json
import re
import subprocess

import pytest
from chromium import find_chromium

import d2lmgpu as d2l
from d2lmgpu import collectives, plans
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.networks import Dense, Flatten, sequential
from d2lmgpu.pictures.plans import bars_of, handed_on
from d2lmgpu.plans import PLANS

DENSE = sequential((1, 1, 5), Flatten(), *(Dense(5) for _ in range(8)))
COSTS = {"F": 1e-3, "B": 2e-3, "I": 1.25e-3, "W": 5e-4, "update": 1e-4}


def film_in(page):
    """The film in the text of a page."""
    return json.loads(page.split('<script id="film" type="application/json">')[1].split("</script>")[0])


@pytest.mark.parametrize("name", PLANS)
def test_a_plans_page_has_what_was_simulated(name, tmp_path):
    for k in (1, 3):
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
        has_stages = any(label.endswith(" s1") for _, _, label, *_ in film["events"])
        assert has_stages == (name in ("channels", "zero2", "zero3"))
        assert film["chart"]["lines"] == [[list(point) for point in line] for line in told.memory]
        assert film["end"] == told.seconds and film["unit"] == "s" and len(film["devices"]) == k


@pytest.mark.parametrize("algorithm, k, n", [("ring", 3, 10), ("tree", 5, 3), ("ring", 1, 4)])
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
    assert all(cell == [" ".join(map(str, range(k))), k] for row in end for cell in row)


EVIL = "</script><script>document.title='broken'</script><!-- & \u2028 {{FILM}} \"'"


def test_whatever_the_texts_are(tmp_path):
    """Nothing in a film ends its script, and nothing is fetched from elsewhere."""
    collectives.write_html(collectives.ring(4, 8), 4, 8, tmp_path / "a.html", title=EVIL)
    page = (tmp_path / "a.html").read_text()
    film = film_in(page)
    assert film["title"].startswith(EVIL)
    assert film["end"] == 6 and film["unit"] == "" and film["marks"][-1] == [5, "step 6"]  # each step takes one
    assert page.count("</script>") == 2 and "<script>document.title" not in page
    loaded = re.findall(r"(?:src|href)\s*=|@import|url\(|fetch\(|import\(", page)
    assert not loaded and "http" not in page.replace("http://www.w3.org/", "")


def test_a_notebook_plays_schedules_and_plans():
    """Each in a frame of its own that holds the page which write_html writes: two share no names."""
    plan = PLANS["1f1b"](2, 2, network=DENSE)
    cells = [
        d2l.play(collectives.ring(3, 7), title=EVIL),
        d2l.play(plan, full_switch(2, 50), batch_size=2),
        d2l.play([], k=2, n=3, height=123),
    ]
    for cell in cells:
        (frame,) = re.findall(r"<iframe ([^<>]*)></iframe>", cell._repr_html_())
        attributes = dict(re.findall(r'([a-z]+)="([^"]*)"', frame))
        assert film_in(html.unescape(attributes["srcdoc"])) == json.loads(json.dumps(cell.film))
        assert cell.film["title"] in repr(cell) and f"height: {cell.height}px" in attributes["style"]
    assert cells[1].film["end"] == plans.simulate(plan, full_switch(2, 50), batch_size=2).seconds
    assert len(cells[0].film["devices"]) == 3 and cells[0].film["holds"]["columns"] == ["0–2", "3–4", "5–6"]
    assert len(cells[2].film["devices"]) == 2 and cells[2].height == 123


def driven(file, script):
    """What a browser of 600 pixels finds that opens the page and runs the script; skips where there is none."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no chromium, the browser of this test")
    file.write_text(file.read_text().replace("</body>", f"<script>{SHOW}{script}</script></body>"))
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={file.parent / 'profile'}"]
    command += ["--window-size=600,900", "--virtual-time-budget=3000", "--dump-dom", file.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    return json.loads(base64.b64decode(re.search(r'<pre id="found">(.*?)</pre>', dom)[1]))


SHOW = """
const player = document.getElementById("player").player;
const report = (found) => { const text = btoa(unescape(encodeURIComponent(JSON.stringify(found))));
  document.body.replaceChildren(Object.assign(document.createElement("pre"), { id: "found", textContent: text })); };
"""
DRIVE = """
const seen = [];
const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const look = () => seen.push([player.time, player.playing, player.now.map((cells) => cells.does.textContent),
  player.flying.childElementCount, player.said.textContent]);
look();
for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home", " "]) { press(key); look(); }
press(" ");
go(player, MIDDLE); look();
document.querySelector("details").open = true;
setTimeout(() => report({ seen, rows: document.querySelectorAll("details tr").length,
  boxes: document.querySelectorAll("rect.box").length, wide: document.documentElement.scrollWidth }), 200);
"""


def test_a_browser_plays_it(tmp_path):
    """Drives a browser: keys step and play, devices do then what was simulated, nothing is wider than the page."""
    plan = PLANS["gpipe"](2, 2, network=DENSE)
    arguments = full_switch(2, 20, latency=0.5), {"F": 1, "B": 2}
    plans.write_html(plan, tmp_path / "plan.html", *arguments, batch_size=2)
    told = plans.simulate(plan, *arguments, batch_size=2)
    computed = [event for event in told.events if event.action.what in "FB"]
    first = next(m for m in told.messages if m.end > m.start)
    middle = (first.start + first.end) / 2
    found = driven(tmp_path / "plan.html", DRIVE.replace("MIDDLE", repr(middle)))

    def at(time):
        doing = [str(e.action) for i in (0, 1) for e in computed if e.action.device == i and e.start <= time < e.end]
        return doing, sum(m.start <= time < m.end for m in told.messages)

    moments = sorted({0, *(t for e in (*computed, *told.messages) for t in (e.start, e.end))})
    _, one, _, _, end, _, playing, paused = found["seen"]
    expected = [0, moments[1], moments[2], moments[1], told.seconds, 0]
    assert [time for time, *_ in found["seen"][:6]] == expected and playing[1] and not paused[1]
    for time, _, does, flying, _ in found["seen"]:
        doing = [text for text in does if text not in ("waits", "has finished")]
        assert (doing, flying) == at(time)
    assert at(middle)[1] >= 1 and end[2] == ["has finished"] * 2
    assert "F of stage 0, micro-batch 1" in one[4] and "Time 1.00 s of" in one[4]
    assert found["rows"] == 1 + len(told.events) + len(told.messages)
    assert found["boxes"] == sum(1 for e in told.events if e.action.what in ("F", "B", "update"))
    assert found["wide"] <= 600


def test_a_browser_plays_a_schedule(tmp_path):
    """Drives a browser: the title is the text that was given, however evil."""
    collectives.write_html(collectives.naive(3, 7), 3, 7, tmp_path / "a.html", title=EVIL)
    script = """go(player, 1.5);
    report({ holds: player.holds.map((row) => row.map((cell) => cell.textContent)),
           flying: player.flying.childElementCount, heading: document.querySelector("h1").textContent });"""
    found = driven(tmp_path / "a.html", script)
    assert found["holds"] == [["0 1"], ["1"], ["2"]] and found["flying"] == 1 and found["heading"].startswith(EVIL)
