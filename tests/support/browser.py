"""A browser without a window, driven over a pipe by the protocol of its developer tools."""

import base64
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)
MISSING = f"no browser on PATH: looked for {', '.join(NAMES)}"
PATIENCE_S = 60


class Tab:
    """One page of a browser."""

    def __init__(self, orders, answers):
        self._orders, self._answers = orders, answers
        self._rest = b""
        self._number = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")

    _session = None

    def call(self, method, **params):
        """Give an order and return its result."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": params}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                received = os.read(self._answers, 1 << 20)
                assert received, "the browser has gone"
                self._rest += received
            line, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def see(self, width, height=900, scheme="light"):
        """Take a size in pixels, and a colour scheme of the system."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def run(self, expression):
        """Return the value of an expression; a promise is waited for."""
        how = {"returnByValue": True, "awaitPromise": True}
        found = self.call("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true, and return its value."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self.run(expression)):
            assert time.monotonic() < deadline, (expression, self.run("document.body.innerText"))
            time.sleep(0.02)
        return found

    def press(self, key, code=0, modifiers=0):
        """Press a key as a user does."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        keys = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **keys, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **keys)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def picture(self):
        """Return the page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browsing(folder):
    """A tab of a browser that keeps its profile in a folder."""
    to_browser, orders = os.pipe()
    answers, from_browser = os.pipe()
    flags = ["--headless", "--disable-gpu", "--no-zygote", f"--user-data-dir={folder}"]
    flags += ["--no-sandbox"] if os.geteuid() == 0 else []

    def place():  # the browser reads orders from 3 and answers on 4
        os.dup2(to_browser, 100)
        os.dup2(from_browser, 101)
        os.dup2(100, 3)
        os.dup2(101, 4)

    process = subprocess.Popen(
        [BROWSER, *flags, "--remote-debugging-pipe"],
        preexec_fn=place,
        close_fds=False,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Tab(orders, answers)
    finally:
        os.close(orders)  # it ends when its orders end
        os.close(answers)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
