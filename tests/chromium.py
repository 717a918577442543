"""A headless Chromium to look at pages with, over the DevTools protocol on a pair of pipes."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HINT = "Chromium is not installed: apt-get install -y chromium"
_LIMIT_S = 120
_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # which root may not have; the pages are ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-extensions",
    "--window-size=1400,900",
)


def find_chromium() -> str | None:
    """Its path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One tab, and what it did: requests it made, errors it had."""

    def __init__(self, to: int, from_: int) -> None:
        self._to, self._from, self._buffer, self._count, self._session = to, from_, b"", 0, None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _LIMIT_S
        while True:
            answer = self._read(until)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def open(self, path: Path, view: str = "") -> None:
        """Load a page and wait until it has drawn itself. `view` is what stands behind `#`."""
        self.call("Page.navigate", url="about:blank")
        self.requests.clear()
        self.errors.clear()
        self.call("Page.navigate", url=path.absolute().as_uri() + (f"#{view}" if view else ""))
        self.wait("document.documentElement?.dataset.ready")

    def go(self, view: str) -> None:
        """Change what stands behind `#`, and wait for the turns of the episodes that are then open."""
        self.run(f"location.hash = {json.dumps('#' + view)}; new Promise((r) => setTimeout(r, 0))")
        self.settle()

    def settle(self) -> None:
        """Wait for the turns of all open episodes."""
        self.wait("[...document.querySelectorAll('.turns')].every((e) => e.dataset.turns || e.textContent)")

    def run(self, expression: str) -> Any:
        """The value of an expression, or what it promises."""
        params = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = self.call("Runtime.evaluate", **params)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression is true."""
        until = time.monotonic() + _LIMIT_S
        while not self.run(f"Boolean({expression})"):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.01)

    def texts(self, selector: str) -> list[str]:
        """The text of all elements that match."""
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **text)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.errors.append(params["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.errors.append(f"dialog: {params['message']}")
                self.call("Page.handleJavaScriptDialog", accept=True)

    def _read(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._from, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("Chromium does not answer")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)


@contextmanager
def opened_chromium() -> Iterator[Page]:
    """A browser of its own, with a profile that is thrown away."""
    program = find_chromium()
    if program is None:
        raise FileNotFoundError(HINT)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        (their_in, our_out), (our_in, their_out) = _pipe(), _pipe()
        with open(os.devnull, "r+b") as nothing:
            actions = [(os.POSIX_SPAWN_DUP2, their_in, 3), (os.POSIX_SPAWN_DUP2, their_out, 4)]
            actions += [(os.POSIX_SPAWN_DUP2, nothing.fileno(), fd) for fd in (0, 1, 2)]
            words = [program, *_FLAGS, f"--user-data-dir={profile}"]
            pid = os.posix_spawn(program, words, os.environ, file_actions=actions, setpgroup=0)
        os.close(their_in)
        os.close(their_out)
        try:
            yield Page(our_out, our_in)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(our_out)
            os.close(our_in)


def _pipe() -> list[int]:
    """A pipe whose ends have numbers that no `dup2` above overwrites."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends
