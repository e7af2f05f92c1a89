"""The course in a browser's tab: its exercises, its notebooks, the playground, the second visit without a network."""

import json
import tempfile
from pathlib import Path

import pytest
import site_course
from conftest import long
from website import run, serving, try_it, wait_for

from d2lmgpu.exercises import EXERCISES

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


def sources(folder):
    return [path.read_text("utf-8") for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.long
def test_all_solutions_pass_and_wrong_answers_get_their_hints(page):
    """All in one Python. A wrong answer's docstring is a part of what should be said."""
    browser = page("notebooks/06_better_allreduce.html")
    try_it(browser)
    assert run(browser, "from d2lmgpu.exercises import EXERCISES, check, judge\nsolved, refused = [], []")["well"]
    for source in sources("notebooks/solutions"):
        done = run(browser, source + "\nsolved += [n for n in EXERCISES if n in globals() and n not in solved]")
        assert done["well"], done["text"]
        done = run(browser, "print([n for n in solved if n not in refused and not check(n, globals()[n])])")
        assert done["text"].rstrip().endswith("[]"), done["text"]
        run(browser, "refused = [*solved]")
    assert run(browser, "print(len(solved))")["text"] == f"{len(EXERCISES)}\n"
    wrong = 0
    for source in sources("tests/exercises/wrong_answers"):
        done = run(browser, source)
        assert done["well"], done["text"]
        program = "found = {n: f for n, f in globals().items() if '__' in n[1:-1] and callable(f) and f.__doc__}\n"
        program += "verdicts = {n: judge(n.partition('__')[0], f) for n, f in found.items()}\n"
        program += "for n in found: del globals()[n]\n"
        program += "print([len(found), [n for n, v in verdicts.items() if v.right or found[n].__doc__ not in v.says]])"
        count, missed = json.loads(run(browser, program)["text"].splitlines()[-1].replace("'", '"'))
        assert not missed and count
        wrong += count
    assert wrong >= len(EXERCISES)
    kept = browser.evaluate("notebook.session.files['mine.py']")
    assert "# --- ring: kept by check ---" in kept, "right answers are kept"
    browser.open(browser.evaluate("location.href"))
    try_it(browser)
    assert run(browser, "import mine\nprint(callable(mine.ring))")["text"] == "True\n", "for the next visit, too"


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


@pytest.mark.long
def test_cells_are_changed_stopped_and_run_again_and_cannot_touch_the_page(page):
    """HTML that the reader's code makes is shown in a frame that has no access, and no network."""
    browser = page("notebooks/06_better_allreduce.html")
    text = "document.querySelectorAll('.cell_output')[0].innerText"
    before = browser.evaluate(text)
    try_it(browser)
    assert browser.evaluate(text) == before, "what was saved stays until a cell is run"
    set_cell = "notebook.cells[2].editor.set({0}); notebook.keep(notebook.cells[2], {0})"
    browser.evaluate(set_cell.format(json.dumps("import time\nprint('begins')\ntime.sleep(1000)")))
    browser.evaluate("void notebook.run(notebook.cells[2])")
    wait_for(browser, "[...document.querySelectorAll('.tab-output')].some(e => e.textContent.includes('begins'))")
    assert browser.evaluate("notebook.cells[0].said.textContent").startswith("✓"), "what is above was run before"
    browser.evaluate("notebook.stopper.click()")
    wait_for(browser, "!notebook.running")
    assert "stopped" in browser.evaluate("notebook.said.textContent")
    browser.evaluate(set_cell.format(json.dumps("print(6 * 7, naive.__name__)")))
    browser.evaluate("void notebook.run(notebook.cells[2])")
    wait_for(browser, "!notebook.running")
    assert "42 naive" in browser.evaluate("notebook.cells[2].element.innerText"), "with names of the cell above"
    evil = "<script>try {parent.document.title = 'evil'} catch {} "
    evil += "fetch('/index.html').then(() => parent.postMessage('fetched', '*'), () => 0)</script><b>shown</b>"
    browser.evaluate("globalThis.heard = []; addEventListener('message', ({data}) => heard.push(data))")
    source = f"class H:\n    def _repr_html_(self):\n        return {evil!r}\nH()"
    browser.evaluate(f"notebook.cells[3].editor.set({json.dumps(source)})")
    browser.evaluate("void notebook.run(notebook.cells[3])")
    wait_for(browser, "!notebook.running")
    frame = "notebook.cells[3].element.querySelector('.tab-output iframe')"
    browser.evaluate(f"{frame}.scrollIntoView()")
    wait_for(browser, "heard.some(data => data.height)")
    assert browser.evaluate("document.title").startswith("Better allreduce")
    assert not browser.evaluate("heard.includes('fetched')")
    assert browser.evaluate(f"{frame}.getAttribute('sandbox')") == "allow-scripts"
    browser.open(browser.evaluate("location.href"))
    try_it(browser)
    assert browser.evaluate("notebook.cells[2].source") == "print(6 * 7, naive.__name__)", "changes are kept"
    browser.evaluate("notebook.cells[2].reset.click()")
    assert browser.evaluate("notebook.cells[2].source").startswith("print(*naive(3, 6)")


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


def device(i):
    return f'[data-device="{i}"] circle'


def click(browser, text):
    """A button of the playground."""
    browser.evaluate(f"[...document.querySelectorAll('.tab-bar button')].find(b => b.textContent === '{text}').click()")


def write(browser, code):
    """Code into the playground's editor."""
    browser.evaluate(f"playground.code.set({json.dumps(code)})")


def settled(browser):
    wait_for(browser, "!playground.running && playground.verdict.textContent", 120)
    return browser.evaluate("playground.verdict.innerText")


@pytest.mark.long
def test_the_playground(page):
    browser = page("index.html")
    assert "Proved: all 4 devices" in browser.evaluate("playground.verdict.innerText"), "before anything is loaded"
    loaded = browser.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded and not [name for name in loaded if "python" in name]
    drag(browser, device(0), device(2))
    assert browser.evaluate("playground.wiring.value").endswith("3-0: 25 GB/s\n0-2: 25 GB/s\n")
    drag(browser, device(2), device(0))
    assert browser.evaluate("playground.wiring.value").count("\n") == 5, "a wire that is there is not drawn again"
    drag(browser, '[data-line="1"] .tab-near', '[data-line="1"] .tab-near')
    assert "1-2: 100 GB/s" in browser.evaluate("playground.wiring.value")
    assert browser.evaluate("document.querySelector('[data-line=\"1\"] text').textContent") == "100 GB/s"
    click(browser, "+ device")
    assert browser.evaluate("playground.wiring.value").endswith("3-4: 25 GB/s\n")
    click(browser, "Invent one")
    assert "Proved: all 5 devices" in settled(browser)
    assert "invented for the wiring" in browser.evaluate("playground.verdict.innerText")
    click(browser, "My code again")
    assert browser.evaluate("playground.code.field.value").startswith('def schedule(k, n):\n    """Chunks go round')
    write(browser, "def schedule(k, n):\n    while True: pass")
    click(browser, "▶ Prove and play")
    wait_for(browser, "playground.said.textContent.startsWith('running')")
    click(browser, "Invent one")
    assert "still running" in browser.evaluate("playground.said.textContent")
    assert "while True" in browser.evaluate("playground.code.field.value"), "nothing is lost"
    drag(browser, STOP, STOP)
    wait_for(browser, "!playground.running")
    assert "stopped" in browser.evaluate("playground.said.textContent")
    write(browser, "def schedule(k, n):\n    return [[Transfer(1, 0, 0, n, 'add')]]")
    click(browser, "▶ Prove and play")
    assert "Not an allreduce: device 0" in settled(browser)
    write(browser, "def schedule(k, n):\n    return ALGORITHMS['tree'](k, n)")
    click(browser, "Train LeNet with it")
    wait_for(browser, "!playground.running", 120)
    assert "5 devices, 4,000 images" in browser.evaluate("playground.output.innerText")
    assert browser.evaluate("document.querySelectorAll('#playground img').length") == 1


@pytest.mark.long
def test_a_link_keeps_wiring_and_code_and_runs_nothing(page):
    browser = page("index.html")
    browser.evaluate("playground.change('0-1: 7 GB/s\\n')")
    write(browser, 'print("ran ü")')
    click(browser, "Copy link")
    wait_for(browser, "location.hash.startsWith('#play=')")
    link = browser.evaluate("location.href")
    browser.open("about:blank")
    browser.open(link)
    assert browser.evaluate("playground.wiring.value") == "0-1: 7 GB/s\n"
    assert browser.evaluate("playground.code.field.value") == 'print("ran ü")'
    assert "came with the link" in browser.evaluate("playground.verdict.innerText")
    assert not browser.evaluate("!!playground.session.worker")
    assert "ran" not in browser.evaluate("playground.output.innerText")
    browser.open("about:blank")
    browser.open(link[:-9] + "%%%")
    assert "damaged" in browser.evaluate("playground.said.textContent")
    assert "Proved" in browser.evaluate("playground.verdict.innerText"), "the ring of four is there instead"


@pytest.mark.long
def test_the_second_visit_needs_no_network(site, browser):
    """The server is gone then. A browser of its own: what was kept for another address does not count."""
    from browser import Browser
    from chromium import find_chromium

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Browser(find_chromium(), folder) as browser:
        with serving(site) as address:
            page = f"{address}notebooks/06_better_allreduce.html"
            browser.open(page)
            try_it(browser)
            assert run(browser, "import d2lmgpu as d2l\nX, y, *_ = d2l.load_fashion_mnist()\nprint(X.shape)")["well"]
        browser.open(page)
        assert browser.evaluate("document.title").startswith("Better allreduce")
        try_it(browser)
        done = run(browser, "import d2lmgpu as d2l\nprint(d2l.load_fashion_mnist()[0].shape)")
        assert done["text"] == "(60000, 1, 28, 28)\n", done
