"""A real headless Chromium, driven over a pipe with the standard library alone.

Set ``DRIFTNORM_CHROMIUM`` to a browser that is not on the path.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = os.environ.get("DRIFTNORM_CHROMIUM") or next(
    filter(None, map(shutil.which, NAMES)), None
)
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: apt-get install chromium, or set DRIFTNORM_CHROMIUM"
)
# The browser speaks on file descriptors 3 and 4; this puts our pipes there and becomes the browser.
BECOME = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4);"
    "os.execv(sys.argv[3], sys.argv[3:])"
)
FLAGS = [
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
    *("--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage"),
]


def high(descriptor: int) -> int:
    """The same pipe end under a number that 3 and 4 cannot run into."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)
    os.close(descriptor)
    return copy


class Browser:
    """One browser with one page, spoken to in the DevTools protocol."""

    def __init__(self, profile: Path) -> None:
        (read_theirs, write_ours), (read_ours, write_theirs) = os.pipe(), os.pipe()
        read_theirs, write_theirs = high(read_theirs), high(write_theirs)
        become = [sys.executable, "-c", BECOME, str(read_theirs), str(write_theirs)]
        self.process = subprocess.Popen(
            [*become, str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(read_theirs, write_theirs),
            stderr=subprocess.DEVNULL,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self.read, self.write = open(read_ours, "rb"), open(write_ours, "wb")  # noqa: SIM115
        self.rest, self.number, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = next(
            t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"
        )
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask, keep what else comes in between, and return the answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def receive(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.read.fileno(), 1 << 16)
            assert more, "the browser ended"
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, address: str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive())

    def run(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "Escape": 27}[key]
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code, **more)  # fmt: skip

    def middle(self, selector: str) -> dict[str, float]:
        """Where an element is, scrolled into sight."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const r = e.getBoundingClientRect();"
            "return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()"
        )
        self.settle()
        return dict(place)

    def settle(self) -> None:
        """Until scrolling and drawing are done."""
        frames = "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
        self.call("Runtime.evaluate", expression=frames, awaitPromise=True)

    def hover(self, selector: str) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self.middle(selector))

    def click(self, selector: str) -> None:
        place = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def complaints(self) -> list[Any]:
        """Console errors and warnings, exceptions, and what the browser itself logged."""
        self.settle()
        bad = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [event for event in self.events if event["method"] in bad]

    def requests(self) -> list[str]:
        """Every address that was asked for, pictures inside the page aside."""
        self.settle()
        sent = [e["params"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        urls = [str(parameters["request"]["url"]) for parameters in sent]
        return [url for url in urls if not url.startswith("data:")]

    def close(self) -> None:
        self.call("Browser.close")
        self.process.wait(timeout=20)
        self.read.close()
        self.write.close()
