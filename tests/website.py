"""The whole website, and a browser for it: fixtures of the tests that look at it, of which conftest.py tells pytest."""

import contextlib
import functools
import http.server
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from extras import environment

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The whole site, built by what the extra `docs` brings alone.

    Sphinx's warnings are errors: a link into the void, a picture that is not there.
    """
    programs = environment("docs", tmp_path_factory.mktemp("docs") / "environment")
    folder = tmp_path_factory.mktemp("site")
    command = [programs / "sphinx-build", "-W", "-q", "-E", DOCS, folder]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=590)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="session")
def browser(site, tmp_path_factory):
    """A `Browser`, and the address of the site, which has a server."""
    from browser import Browser  # not under WebAssembly
    from chromium import find_chromium

    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no chromium, the browser of this test")
    with serving(site) as address, Browser(chromium, tmp_path_factory.mktemp("profile")) as browser:
        yield browser, address


def wait_for(browser, code, seconds=60):
    """Until a JavaScript expression is true."""
    deadline = time.monotonic() + seconds
    while not browser.evaluate(code):
        assert time.monotonic() < deadline, f"{code} does not become true"


RUN = """(async () => {{
  const told = [];
  const well = await notebook.session.run({source}, "a test", part => told.push(part));
  return {{well, told, text: told.map(part => part.text || part.error || "").join("")}};
}})()"""


def run(browser, source):
    """Run a cell that is not on the page; returns a dict: whether it went ``well``, its ``text``, all that it told."""
    return browser.evaluate(RUN.format(source=json.dumps(source)))


def try_it(browser):
    browser.evaluate("document.querySelector('.tab-top button').click()")
    wait_for(browser, "notebook.session.measured || notebook.said.textContent.includes('ended')", 120)
    assert "Python is ready" in browser.evaluate("notebook.said.textContent")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serving(folder, handler=Quiet):
    """The address of a server of a folder, on this machine; at the block's end it is gone."""
    handler = functools.partial(handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
