"""The ways to stop training in a real notebook: the kernel's interrupt, and the button, clicked in a browser."""

import json
import os
import queue
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chromium import find_chromium

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120
"""Seconds after which something that should come does not come any more."""

TRAIN = """
import json, threading
import d2lmgpu as d2l
from d2lmgpu.live_plot import Panel

class Count(d2l.Callback):
    steps, clicked, lock = 0, None, threading.Lock()
    def on_step(self, epoch, step, loss):
        with self.lock:
            self.steps += 1

count, press = Count(), Panel._press
def noted(panel, button):
    with count.lock:
        count.clicked = count.steps, threading.current_thread() is threading.main_thread()
        press(panel, button)
Panel._press = noted

data = [part[:2000] for part in d2l.load_fashion_mnist()]
devices = [d2l.cpu(0), d2l.cpu(1)]
history, params = d2l.train(
    devices, batch_size=50, lr=0.02, num_epochs=10_000, init="he", data=data, callbacks=[count]
)
"""
"""Trains for hours unless it is stopped, 40 steps an epoch. Notes how many steps were done when the button is heard."""

TELL = """
accuracy = d2l.evaluate(params, *data[2:], devices)
print("told", json.dumps({
    "epochs": len(history.train_loss), "interrupted": history.interrupted, "accuracy": accuracy,
    "steps": count.steps, "clicked": count.clicked,
}))
"""


def environment(folder):
    """For Jupyter's programs: nothing of the user's settings, everything of this checkout."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    folders = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "IPYTHONDIR": str(folder / "ipython"), **folders}


def check_what_was_kept(told):
    """Whatever stopped it: complete epochs are in the history, and the parameters are those after the last step."""
    interrupted = told["interrupted"]
    assert interrupted["epoch"] == told["epochs"] + (interrupted["steps"] < 40)
    assert told["steps"] == 40 * (interrupted["epoch"] - 1) + interrupted["steps"]
    assert told["accuracy"] == interrupted["test_accuracy"]


@pytest.fixture
def kernel(tmp_path):
    """A running kernel, without a page: its manager and client."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (pip install -e '.[notebooks]')")
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed (pip install -e '.[notebooks]')")
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", env=environment(tmp_path))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_the_kernels_interrupt(kernel):
    manager, client = kernel
    client.execute(TRAIN)
    wait_for(client, lambda kind, content: kind == "comm_msg" and "step" in str(content))
    manager.interrupt_kernel()
    assert client.get_shell_msg(timeout=PATIENCE)["content"]["status"] == "ok"
    client.execute(TELL)
    told = wait_for(client, lambda kind, content: kind == "stream" and content["text"].startswith("told"))
    told = json.loads(told["text"].removeprefix("told"))
    check_what_was_kept(told)
    assert told["clicked"] is None


def wait_for(client, fits):
    """The content of the first message from the kernel for which ``fits(kind, content)``."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            message = client.get_iopub_msg(timeout=1)
        except queue.Empty:
            continue
        assert message["msg_type"] != "error", message["content"]
        if fits(message["msg_type"], message["content"]):
            return message["content"]
    raise TimeoutError("the kernel did not say what was expected")


@pytest.fixture
def notebook_page(tmp_path):
    """A page of a browser with a notebook of two cells in a JupyterLab of its own."""
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed (pip install -e '.[notebooks]')")
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed (pip install -e '.[notebooks]')")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives a browser, is missing")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no chromium, the browser of this test")
    from nbformat import v4, write

    notebook = v4.new_notebook(cells=[v4.new_code_cell(TRAIN), v4.new_code_cell(TELL)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    (tmp_path / "root").mkdir()
    write(notebook, tmp_path / "root" / "stop.ipynb")
    token = secrets.token_hex(16)
    settings = [f"--ServerApp.root_dir={tmp_path / 'root'}", "--ServerApp.port=0", f"--IdentityProvider.token={token}"]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", *settings]
    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(command, env=environment(tmp_path), stdout=log, stderr=log)
    try:
        url = server_url(server, tmp_path)
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1200, "height": 1300})
            page.set_default_timeout(1000 * PATIENCE)
            page.goto(f"{url}lab/tree/stop.ipynb?token={token}")
            page.get_by_text("| Idle").wait_for()
            yield page
            browser.close()
    finally:
        server.terminate()
        server.wait(PATIENCE)


def server_url(server, folder):
    """Where the server listens, when it does: it says so in a file."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and server.poll() is None:
        for file in (folder / "runtime").glob("jpserver-*.json"):
            return json.loads(file.read_text())["url"]
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab does not start:\n{(folder / 'log').read_text()}")


def run_cell(page, number):
    page.locator(".jp-CodeCell .cm-content").nth(number).click()
    page.keyboard.press("Shift+Enter")


def test_the_button(notebook_page):
    page = notebook_page
    run_cell(page, 0)
    page.locator(".jp-OutputArea .widget-label", has_text="step").wait_for()
    button = page.locator(".jp-OutputArea button.jupyter-button")
    assert button.inner_text() == "Stop"
    button.click()
    page.locator(".jp-OutputArea", has_text="stopped after").first.wait_for()
    assert button.count() == 0 and page.locator(".jp-OutputArea img").count() == 1
    run_cell(page, 1)
    line = page.locator(".jp-OutputArea pre", has_text="told ")
    line.wait_for()
    told = json.loads(line.inner_text().removeprefix("told "))
    print(told)
    check_what_was_kept(told)
    clicked, in_main_thread = told["clicked"]
    assert told["steps"] - clicked <= 1 and not in_main_thread
