"""The course in a browser's tab: an exercise, notebooks, the playground, the second visit without a network."""

import json
import tempfile
from pathlib import Path

import pytest
import site_course
from conftest import long
from website import run, serving, try_it, wait_for

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = sorted(site_course.core() - {"05_training_on_k_devices"})
"""The notebooks that the README has in bold, but for one."""


@pytest.fixture
def page(browser):
    """A function: open a page of the site as if for the first time, and return the `Browser`."""
    browser, address = browser
    browser.look_like(1200, 900)

    def opened(path):
        browser.open(address + path)
        browser.evaluate("localStorage.clear()")
        browser.open(address + path)
        return browser

    return opened


@pytest.mark.parametrize(
    "name", [*long("05_training_on_k_devices"), *(pytest.param(name, marks=pytest.mark.nightly) for name in NIGHTLY)]
)
def test_a_notebook_runs_from_top_to_bottom(page, name):
    browser = page(f"notebooks/{name}.html")
    try_it(browser)
    browser.evaluate("void notebook.run(notebook.cells.at(-1))")
    wait_for(browser, "!notebook.running", 300)
    said = browser.evaluate("notebook.cells.map(cell => cell.said.textContent)")
    errors = browser.evaluate("[...document.querySelectorAll('.tab-error')].map(error => error.textContent)")
    assert len(said) > 5 and all(text.startswith("✓") for text in said), (said, errors)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 1200


def set_and_run(browser, number, source):
    browser.evaluate(f"notebook.cells[{number}].editor.set({json.dumps(source)})")
    browser.evaluate(f"notebook.keep(notebook.cells[{number}], {json.dumps(source)})")
    browser.evaluate(f"void notebook.run(notebook.cells[{number}])")


EVIL = """class H:
    def _repr_html_(self):
        return '''<script>try {parent.document.title = "evil"} catch {}
fetch("/index.html").then(() => parent.postMessage("fetched", "*"), () => 0)</script><b>shown</b>'''
H()"""


@pytest.mark.long
def test_cells_are_changed_stopped_checked_and_kept_and_cannot_touch_the_page(page):
    """HTML that the reader's code makes is shown in a frame that has no access, and no network."""
    browser = page("notebooks/06_better_allreduce.html")
    try_it(browser)
    set_and_run(browser, 2, "import time\nprint('begins')\ntime.sleep(1000)")
    wait_for(browser, "[...document.querySelectorAll('.tab-output')].some(e => e.textContent.includes('begins'))")
    assert browser.evaluate("notebook.cells[0].said.textContent").startswith("✓"), "what is above was run before"
    browser.evaluate("notebook.stopper.click()")
    wait_for(browser, "!notebook.running")
    assert "stopped" in browser.evaluate("notebook.said.textContent")
    set_and_run(browser, 2, "print(6 * 7, naive.__name__)")
    wait_for(browser, "!notebook.running")
    assert "42 naive" in browser.evaluate("notebook.cells[2].element.innerText"), "with names of the cell above"
    browser.evaluate("globalThis.heard = []; addEventListener('message', ({data}) => heard.push(data))")
    set_and_run(browser, 3, EVIL)
    wait_for(browser, "!notebook.running")
    browser.evaluate("notebook.cells[3].element.querySelector('.tab-output iframe').scrollIntoView()")
    wait_for(browser, "heard.some(data => data.height)")
    assert browser.evaluate("document.title").startswith("Better allreduce")
    assert not browser.evaluate("heard.includes('fetched')")
    assert "✗ ring: " in run(browser, "from d2lmgpu.exercises import check\ncheck('ring', lambda k, n: [])")["text"]
    solution = (ROOT / "notebooks" / "solutions" / "06_better_allreduce.py").read_text("utf-8")
    assert "✓ ring: " in run(browser, f"{solution}\ncheck('ring', ring)")["text"]
    browser.open(browser.evaluate("location.href"))
    try_it(browser)
    assert run(browser, "import mine\nprint(callable(mine.ring))")["text"] == "True\n", "answers are kept"
    assert browser.evaluate("notebook.cells[2].source") == "print(6 * 7, naive.__name__)", "changes are kept"


MIDDLE = "(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector('{}').getBoundingClientRect())"


def drag(browser, start, end):
    """As a hand does, from the middle of one element to that of another, once they are on the screen."""
    browser.evaluate(f"document.querySelector('{start}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    steps = ("mouseMoved", start), ("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)
    for number, (kind, place) in enumerate(steps):
        x, y = browser.evaluate(MIDDLE.format(place))
        button = "left" if number else "none"
        browser.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)


STOP = "#playground .tab-stop"


def click(browser, text, code=None):
    """A button of the playground, perhaps with other code in its editor."""
    if code is not None:
        browser.evaluate(f"playground.code.set({json.dumps(code)})")
    browser.evaluate(f"[...document.querySelectorAll('.tab-bar button')].find(b => b.textContent === '{text}').click()")


def settled(browser):
    wait_for(browser, "!playground.running && playground.verdict.textContent", 120)
    return browser.evaluate("playground.verdict.innerText")


@pytest.mark.long
def test_the_playground(page):
    """A wire is drawn, an allreduce invented, code stopped, refuted, and trained with; a link keeps all of it."""
    browser = page("index.html")
    assert "Proved: all 4 devices" in browser.evaluate("playground.verdict.innerText"), "before anything is loaded"
    loaded = browser.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded and not [name for name in loaded if "python" in name]
    drag(browser, '[data-device="0"] circle', '[data-device="2"] circle')
    assert browser.evaluate("playground.wiring.value").endswith("3-0: 25 GB/s\n0-2: 25 GB/s\n")
    click(browser, "+ device")
    click(browser, "Invent one")
    said = settled(browser)
    assert "Proved: all 5 devices" in said and "invented for the wiring" in said
    click(browser, "▶ Prove and play", "def schedule(k, n):\n    while True: pass")
    wait_for(browser, "playground.said.textContent.startsWith('running')")
    drag(browser, STOP, STOP)
    wait_for(browser, "!playground.running")
    assert "stopped" in browser.evaluate("playground.said.textContent")
    click(browser, "▶ Prove and play", "def schedule(k, n):\n    return [[Transfer(1, 0, 0, n, 'add')]]")
    assert "Not an allreduce: device 0" in settled(browser)
    click(browser, "Train LeNet with it", "def schedule(k, n):\n    return ALGORITHMS['tree'](k, n)  # ü")
    wait_for(browser, "!playground.running", 120)
    assert "5 devices, 4,000 images" in browser.evaluate("playground.output.innerText")
    click(browser, "Copy link")
    wait_for(browser, "location.hash.startsWith('#play=')")
    wiring, link = browser.evaluate("[playground.wiring.value, location.href]")
    browser.open("about:blank")
    browser.open(link)
    assert browser.evaluate("playground.wiring.value") == wiring
    assert browser.evaluate("playground.code.field.value").endswith("  # ü")
    assert "came with the link" in browser.evaluate("playground.verdict.innerText")
    assert not browser.evaluate("!!playground.session.worker")


@pytest.mark.long
def test_the_second_visit_needs_no_network(site, browser):
    """The server is gone then. A browser of its own: what was kept for another address does not count."""
    from browser import Browser
    from chromium import find_chromium

    program = "import d2lmgpu as d2l\nprint(d2l.load_fashion_mnist()[0].shape)"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Browser(find_chromium(), folder) as browser:
        with serving(site) as address:
            page = f"{address}notebooks/06_better_allreduce.html"
            browser.open(page)
            try_it(browser)
            assert run(browser, program)["well"]
        browser.open(page)
        try_it(browser)
        assert run(browser, program)["text"] == "(60000, 1, 28, 28)\n"
