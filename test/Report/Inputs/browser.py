# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A browser without a window, for tests of pages: Chromium, over the two pipes of its
DevTools protocol. Where there is none, open_browser() fails and says what to install."""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# A machine may be very busy; a browser that hangs is a failure all the same.
SECONDS = 300


class Browser:
    """One browser with one page."""

    def __init__(self, write, read):
        self.write, self.read = write, read
        self.number = 0
        self.session = None
        # What the page says or asks for, as (event, parameters), since the last load().
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def receive(self):
        message = bytearray()
        while (byte := self.read.read(1)) != b"\0":
            assert byte, "the browser has ended"
            message += byte
        message = json.loads(message)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
            if message["method"] == "Page.javascriptDialogOpening":
                self.send("Page.handleJavaScriptDialog", accept=True)
        return message

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        return self.number

    def call(self, method, **parameters):
        number = self.send(method, **parameters)
        while (message := self.receive()).get("id") != number:
            pass
        assert "result" in message, message
        return message["result"]

    def load(self, path):
        self.events = []
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while not any(name == "Page.loadEventFired" for name, _ in self.events):
            self.receive()

    def show(self, width, height, scheme="light"):
        """The size of the window, and whether the person likes it dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def evaluate(self, script):
        """The value of a function's body in the page, whose policy does not bind it."""
        answer = self.call(
            "Runtime.evaluate", expression=f"(() => {{ {script} }})()", returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path):
        """A PNG of what the window shows."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def complaints(self):
        """What a page that is only shown does not do: errors and other words on the
        console, dialogs, and requests for more than itself."""
        found = []
        for name, values in self.events:
            if name == "Network.requestWillBeSent":
                if values["type"] != "Document":
                    found.append("asks for " + values["request"]["url"])
            elif name == "Runtime.consoleAPICalled":
                found.append(f"says {values['args']}")
            elif name == "Runtime.exceptionThrown":
                found.append(f"throws {values['exceptionDetails']}")
            elif name == "Log.entryAdded":
                found.append("console: " + values["entry"]["text"])
            elif name == "Page.javascriptDialogOpening":
                found.append("opens a dialog: " + values["message"])
        return found


@contextlib.contextmanager
def open_browser():
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program, f"expected one of {', '.join(NAMES)}: install chromium-headless-shell"
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()

    def place_pipes():
        # The browser reads from 3 and writes to 4, which may be others of ours now.
        ends = enumerate((to_browser, to_us))
        for place, end in [(3 + i, os.dup2(end, 100 + i, inheritable=False)) for i, end in ends]:
            os.dup2(end, place)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            [
                program,
                *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en"),
                *("--remote-debugging-pipe", f"--user-data-dir={home}", "about:blank"),
            ],
            preexec_fn=place_pipes,
            close_fds=False,
            env={**os.environ, "HOME": home, "XDG_RUNTIME_DIR": home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(to_us)
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
        signal.alarm(SECONDS)
        try:
            with open(from_us, "wb") as write, open(from_browser, "rb") as read:
                browser = Browser(write, read)
                yield browser
                browser.session = None
                browser.send("Browser.close")
                process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        finally:
            signal.alarm(0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
