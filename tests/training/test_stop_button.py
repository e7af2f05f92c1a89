"""A real kernel, whose interrupt stops training. The button is tried in test_live_plot.py."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120
"""Seconds after which something that should come does not come any more."""

TRAIN = """
import d2lmgpu as d2l

class Count(d2l.Callback):
    steps = 0
    def on_step(self, epoch, step, loss):
        self.steps += 1

count = Count()
data = [part[:2000] for part in d2l.load_fashion_mnist()]
history, params = d2l.train(2, batch_size=50, lr=0.02, num_epochs=10_000, init="he", data=data, callbacks=[count])
"""
"""Trains for hours unless it is stopped, 40 steps an epoch."""

CHECK = """
stopped = history.interrupted
assert stopped["epoch"] == len(history.train_loss) + (stopped["steps"] < 40)
assert count.steps == 40 * (stopped["epoch"] - 1) + stopped["steps"]
assert d2l.evaluate(params, *data[2:], 2) == stopped["test_accuracy"]
"""


@pytest.mark.long
def test_the_kernels_interrupt(tmp_path, monkeypatch):
    """In a home without settings, of this checkout."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (pip install -e '.[notebooks]')")
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed (pip install -e '.[notebooks]')")
    from jupyter_client.manager import start_new_kernel

    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("HOME", str(tmp_path))
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        client.execute(TRAIN)
        message = None
        while not message or message["msg_type"] != "comm_msg" or "step" not in str(message["content"]):
            message = client.get_iopub_msg(timeout=PATIENCE)
            assert message["msg_type"] != "error", message["content"]
        manager.interrupt_kernel()
        assert client.get_shell_msg(timeout=PATIENCE)["content"]["status"] == "ok"
        client.execute(CHECK)
        answer = client.get_shell_msg(timeout=PATIENCE)["content"]
        assert answer["status"] == "ok", answer
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
