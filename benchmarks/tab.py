"""Answers: how long does the course in a browser's tab take to be ready, what does it load, and how fast is it there?

    python benchmarks/tab.py SITE --json benchmarks/results/tab.json --page docs/in_a_tab.md

SITE: a folder that `sphinx-build docs SITE` has filled. A visit is that of a Chromium without a window, to a server on
this machine: no network is measured, and no disk beyond this machine's cache. "first": a new profile; "second": the
same one again. Of each figure the median, the least and the most of the rounds are written.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from quoted import circumstances, fill, write

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / folder) for folder in ("docs", "tests", "tests/documents")]

from chromium import find_chromium  # noqa: E402

ROUNDS = 5
PAGE = "notebooks/06_better_allreduce.html"
TIMES = """import time
import numpy as np
import matplotlib.pyplot as plt
import d2lmgpu as d2l
from d2lmgpu import plans
devices = [d2l.cpu(i) for i in range(4)]
rng = np.random.default_rng(0)
X, y = rng.random((256, 1, 28, 28), np.float32), rng.integers(0, 10, 256)
params = [d2l.get_params(d2l.init_params(init="he"), device) for device in devices]
sums = [d2l.put(np.ones(129_068, np.float32), device) for device in devices]

def seconds(work):
    work()
    begin = time.perf_counter()
    for _ in range(5):
        work()
    return (time.perf_counter() - begin) / 5

print({
    "a ring allreduce of LeNet's gradients on four devices": seconds(lambda: d2l.allreduce(sums, "ring")),
    "a step of 256 images on four devices": seconds(lambda: d2l.train_batch(X, y, params, devices, 0.05, "ring")),
    "all plans proved": seconds(lambda: [plans.prove(plans.PLANS[name](4, 4)) for name in plans.PLANS]),
})
"""


def visit(browser, address):
    """Seconds until Python is ready, as the page says, bytes of its memory, and seconds of each of `TIMES`."""
    from test_tab_in_browser import run, try_it

    browser.open(address)
    try_it(browser)
    ready = browser.evaluate("notebook.session.measured.seconds")
    done = run(browser, TIMES)
    assert done["well"], done["text"]
    return {"ready": ready, "memory": browser.evaluate("notebook.session.measured.memory"), **eval(done["text"])}


def measured(site):
    """For each visit the `spread` of what is measured in the rounds."""
    from browser import Browser
    from website import serving

    rounds = {"first": [], "second": []}
    with serving(site) as address:
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
                for found in rounds.values():
                    with Browser(find_chromium(), profile) as browser:
                        found.append(visit(browser, address + PAGE))
    return {which: {name: spread([one[name] for one in found]) for name in found[0]} for which, found in rounds.items()}


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def table(result):
    """The page's table, and what should be known of it."""
    first, second = result["first"], result["second"]
    lines = ["| measured | median | from | to |", "|---|--:|--:|--:|"]
    rows = [("ready, first visit", first["ready"], "s", 1), ("ready, second visit", second["ready"], "s", 1)]
    rows += [(name, found, "ms", 1e3) for name, found in second.items() if name not in ("ready", "memory")]
    for name, found, unit, scale in rows:
        values = (f"{scale * found[key]:.3g} {unit}" for key in ("median", "least", "most"))
        lines.append(f"| {' | '.join([name, *values])} |")
    loaded, data, memory = result["bytes"], result["bytes of Fashion-MNIST"], second["memory"]["median"]
    about = f"{result['rounds']} rounds in {result['browser']} on {result['machine']}, from a server on the same "
    about += f"machine, {result['date']}, commit {result['commit']}. Loaded once: {loaded / 1e6:.1f} MB, and "
    about += f"{data / 1e6:.1f} MB of Fashion-MNIST by cells that read all of it. Python's memory after these cells: "
    about += f"{memory / 1e6:.0f} MB."
    return "\n".join(lines) + "\n\n" + about


def main():
    parser = argparse.ArgumentParser(description="The course in a browser's tab: how long it takes to be ready.")
    parser.add_argument("site", help="a folder that sphinx-build has filled")
    parser.add_argument("--json", metavar="FILE", required=True)
    parser.add_argument("--page", metavar="FILE", help="write the table into this page of the documents")
    options = parser.parse_args()
    sizes = json.loads((Path(options.site) / "tab" / "files.json").read_text("utf-8"))["sizes"]
    version = subprocess.run([find_chromium(), "--version"], capture_output=True, text=True).stdout.strip()
    result = {
        **circumstances("two cores, nothing beside it"),
        "browser": version.split(" built")[0],
        "rounds": ROUNDS,
        "bytes": sizes["python.wasm.gz"] + sizes["library.tar.gz"],
        "bytes of Fashion-MNIST": sum(size for name, size in sizes.items() if name.startswith("data/")),
        **measured(options.site),
    }
    write(options.json, result)
    if options.page:
        fill(options.page, "measured", table(result))
    print(table(result))


if __name__ == "__main__":
    main()
