"""A browser without a window: Chromium, told what to do by its DevTools protocol, over pipes.

    with Browser(chromium, folder) as browser:
        browser.look_like(390, 844, dark=True)
        browser.open("http://127.0.0.1:8000/index.html")
        browser.evaluate("document.title")
        browser.press("ArrowRight")

The protocol's description: https://chromedevtools.github.io/devtools-protocol.
"""

import base64
import fcntl
import json
import os
import select
import subprocess
import sys
import time

PATIENCE = 120
"""Seconds for an answer, on a slow machine."""

KEYS = {" ": ("Space", 32), "ArrowRight": ("ArrowRight", 39), "ArrowLeft": ("ArrowLeft", 37), "Tab": ("Tab", 9)}
KEYS |= {"Home": ("Home", 36), "End": ("End", 35), "Enter": ("Enter", 13)}


ON_3_AND_4 = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads commands from its file number 3 and answers on 4."""


class Browser:
    """A running Chromium with one page. A context manager, at whose end it ends.

    Raises AssertionError for what goes wrong on its side, such as an exception in the page's JavaScript.
    """

    def __init__(self, chromium, folder):
        ours, its_output = os.pipe()
        its_input, theirs = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (its_input, its_output)]  # off 3 and 4, which it wants
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options += ["--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        command = [sys.executable, "-c", ON_3_AND_4, *map(str, high), chromium, *options]
        self.process = subprocess.Popen(
            command, pass_fds=high, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for end in (its_input, its_output, *high):
            os.close(end)
        self.input, self.output, self.unread, self.count = theirs, ours, b"", 0
        self.session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.send(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.input)
        os.close(self.output)

    def send(self, method, **params):
        """A command of the protocol; returns its result."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.input, data) :]
        answer = self._wait_for(lambda message: message.get("id") == self.count)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _wait_for(self, wanted):
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self._next(deadline)
            if wanted(message):
                return message

    def _next(self, deadline):
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.output], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser has not answered"
            data = os.read(self.output, 1 << 20)
            assert data, "the browser has ended"
            self.unread += data
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def look_like(self, width, height, dark=False):
        """The size of the window, a phone's if it is narrow, and whether dark colours are preferred."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address):
        """Go to a page, and wait until all of it is there."""
        frame = self.send("Page.navigate", url=address)
        assert "errorText" not in frame, (address, frame)
        self._wait_for(lambda message: message.get("method") == "Page.loadEventFired")

    def evaluate(self, code):
        """The value of a JavaScript expression, awaited if it is a promise."""
        result = self.send("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key):
        """Press a key as a hand does: whatever has the focus gets it."""
        code, number = KEYS[key]
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        text = {"text": {"Enter": "\r", " ": " "}[key]} if key in ("Enter", " ") else {}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, path):
        """A picture of what is to be seen, as a PNG file."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))
