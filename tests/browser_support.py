"""A page in a headless Chromium, driven over its pipe. Where there is no Chromium its tests are skipped; with CI=true
they fail.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
    "--disable-dev-shm-usage",
)  # fmt: skip
SECONDS = 60.0


def chromium() -> str:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        why = "no Chromium here. Fix: apt-get install chromium, or `make tests` as root, which does that."
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    return found


class Browser:
    """One page; commands go out and answers come in as JSON that ends with a zero byte."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._number = 0
        self._received = b""
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command; what the page complains about meanwhile is noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            assert select([self._in], [], [], SECONDS)[0], "Chromium does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "Chromium has ended"
            self._received += data
        message, _, self._received = self._received.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        match told.get("method"):
            case "Log.entryAdded" | "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Network.loadingFailed":
                self.complaints.append(json.dumps(told["params"]))
            case "Network.requestWillBeSent":
                url = told["params"]["request"]["url"]
                if not url.startswith(("file:", "data:")):
                    self.complaints.append(f"asks for {url}")
        return told

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Shows a file in a window of that width, and waits until all of it is there."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=path.as_uri())
        self.ask("new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))")

    def ask(self, expression: str) -> Any:
        """What an expression of JavaScript gives in the page."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    program = chromium()
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(prefix="vyre-browser-", ignore_cleanup_errors=True) as home:
        flags = [*FLAGS, f"--user-data-dir={home}", *(["--no-sandbox"] if os.getuid() == 0 else [])]
        quiet = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        # Chromium reads from descriptor 3 and writes to 4, which the pipes may be themselves.
        high = [(os.POSIX_SPAWN_DUP2, theirs_in, 100), (os.POSIX_SPAWN_DUP2, theirs_out, 101)]
        actions = [*high, (os.POSIX_SPAWN_DUP2, 100, 3), (os.POSIX_SPAWN_DUP2, 101, 4), quiet]
        environment = {**os.environ, "HOME": home, "TMPDIR": home}
        arguments = [program, *flags, "about:blank"]
        process = os.posix_spawn(program, arguments, environment, file_actions=actions, setpgroup=0)
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_out, ours_in)
        finally:
            os.close(ours_out)
            os.close(ours_in)
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
