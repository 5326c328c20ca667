"""Opens a page in headless Chromium, over its DevTools pipe: what it loads, how it is laid out."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_LIMIT_S = 60.0
_PIPES = (3, 4)  # the descriptors that --remote-debugging-pipe reads and writes


def find_chromium() -> str | None:
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One tab. Messages are JSON that ends with a zero byte (Chrome DevTools protocol)."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers = to, answers
        self._pending = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []

    def open(self, path: Path, width: int, height: int, *, phone: bool) -> None:
        """A new tab of this size, with the page loaded in it."""
        self.events.clear()
        self._session = ""
        target = self("Target.createTarget", url="about:blank")["targetId"]
        attached = self("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self("Network.enable")
        self("Page.enable")
        self("Log.enable")
        self("Emulation.setDeviceMetricsOverride", width=width, height=height,
             deviceScaleFactor=2 if phone else 1, mobile=phone)  # fmt: skip
        self("Page.navigate", url=path.resolve().as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._read()

    def requests(self) -> list[str]:
        """Every address that the page asked for, but for what stands in the page itself."""
        sent = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        urls = [str(e["params"]["request"]["url"]) for e in sent]
        return [url for url in urls if not url.startswith("data:")]

    def complaints(self) -> list[str]:
        """What Chromium logged about the page."""
        logged = [e for e in self.events if e["method"] == "Log.entryAdded"]
        return [str(e["params"]["entry"]["text"]) for e in logged]

    def evaluate(self, script: str) -> Any:
        found = self("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Of the whole page."""
        shot = self("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _LIMIT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\0" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"Chromium says nothing for {_LIMIT_S:g} s")
                chunk = os.read(self._answers, 1 << 16)
                if not chunk:
                    raise ConnectionError("Chromium has ended")
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


@contextlib.contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    """Runs Chromium with a profile of its own, and ends it with all its processes."""
    command = [
        program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}",
        "--no-first-run", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars",
    ]  # fmt: skip
    if os.geteuid() == 0:
        command.append("--no-sandbox")  # which root cannot have
    # High numbers, so that 3 and 4 are free to be their copies in Chromium.
    to_read, to_write = map(_high, os.pipe())
    from_read, from_write = map(_high, os.pipe())
    log = _high(os.open(profile.with_suffix(".log"), os.O_CREAT | os.O_WRONLY))
    wanted = ((to_read, _PIPES[0]), (from_write, _PIPES[1]), (log, 1), (log, 2))
    copies = [(os.POSIX_SPAWN_DUP2, mine, its) for mine, its in wanted]
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=copies, setsid=True)
    for descriptor in (to_read, from_write, log):
        os.close(descriptor)
    try:
        yield Browser(to_write, from_read)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(to_write)
        os.close(from_read)


def _high(descriptor: int) -> int:
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return copy
