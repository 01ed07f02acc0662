"""A headless Chromium driven over a pipe: one process, no dependency.

Chromium speaks its DevTools protocol on two pipes (file descriptors 3 and 4) as JSON texts that end
with a zero byte, so nothing but the standard library is needed.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

FOUND = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-quic", "--disable-extensions", "--mute-audio", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One page of one browser.

    Attributes:
        said: messages, errors and exceptions of the console since the last `open`.
        asked: addresses that were requested since the last `open`.
    """

    def __init__(self, profile: Path) -> None:
        read_end, self._out = os.pipe()
        self._in, write_end = os.pipe()
        # High numbers first: 3 and 4 may be among the four.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (read_end, write_end)]

        def in_place() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [FOUND, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=in_place, pass_fds=(3, 4), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for fd in (read_end, write_end, *high):
            os.close(fd)
        self._number, self._rest, self._session = 0, b"", None
        self._events: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.asked: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def open(self, page: Path, anchor: str = "") -> None:
        """Show a page and wait until it and its images are there."""
        self.call("Page.navigate", url="about:blank")
        self.js("0")
        self.said, self.asked, self._events = [], [], []
        self.call("Page.navigate", url=page.as_uri() + anchor)
        while not any(e["method"] == "Page.loadEventFired" for e in self._events):
            self._next()
        self.frames()

    def js(self, text: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=text, returnByValue=True,
                           awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def frames(self) -> None:
        """Wait until what was changed is laid out."""
        self.js("new Promise(f=>requestAnimationFrame(()=>requestAnimationFrame(f)))")

    def _next(self, patience: float = 60.0) -> dict[str, Any]:
        end = time.monotonic() + patience
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._in, 1 << 16)
            if not piece:
                raise OSError("the browser has ended")
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method is None:
            return
        self._events.append(message)
        if method == "Runtime.consoleAPICalled":
            self.said.append(str(params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.said.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.said.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
