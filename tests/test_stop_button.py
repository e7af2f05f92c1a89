"""How training is stopped in a real kernel: by its interrupt. The button is tried in test_live_plot.py."""

import json
import os
import queue
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120
"""Seconds after which something that should come does not come any more."""

TRAIN = """
import json
import d2lmgpu as d2l

class Count(d2l.Callback):
    steps = 0
    def on_step(self, epoch, step, loss):
        self.steps += 1

count = Count()
data = [part[:2000] for part in d2l.load_fashion_mnist()]
devices = [d2l.cpu(0), d2l.cpu(1)]
history, params = d2l.train(
    devices, batch_size=50, lr=0.02, num_epochs=10_000, init="he", data=data, callbacks=[count]
)
"""
"""Trains for hours unless it is stopped, 40 steps an epoch."""

TELL = """
accuracy = d2l.evaluate(params, *data[2:], devices)
print("told", json.dumps({
    "epochs": len(history.train_loss), "interrupted": history.interrupted, "accuracy": accuracy,
    "steps": count.steps,
}))
"""


def environment(folder):
    """For Jupyter's programs: nothing of the user's settings, everything of this checkout."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    folders = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "IPYTHONDIR": str(folder / "ipython"), **folders}


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
    interrupted = told["interrupted"]
    assert interrupted["epoch"] == told["epochs"] + (interrupted["steps"] < 40)
    assert told["steps"] == 40 * (interrupted["epoch"] - 1) + interrupted["steps"]
    assert told["accuracy"] == interrupted["test_accuracy"]


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
