"""A real Chromium that tests drive by the DevTools protocol, over pipes.

with Chromium() as browser:
    page = browser.open("http://127.0.0.1:8080/ui/")
    page.wait_for("document.querySelector('h1')")
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from browser_pages import OPTIONS, chromium, running
from command.process import DEADLINE_S

# Chromium reads commands from descriptor 3 and writes to 4.
_WITH_PIPES = (
    "import fcntl, os, sys; ends = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 100) for n in sys.argv[1:3]];"
    "[os.dup2(end, 3 + i) for i, end in enumerate(ends)]; os.execv(sys.argv[3], sys.argv[3:])"
)

# Keys by the names of the events, with what the protocol needs besides.
_KEY_CODES = {
    "Enter": 13, "Escape": 27, "Backspace": 8, "ArrowUp": 38, "ArrowDown": 40,
}  # fmt: skip

# The machine of a test may be busy.
_WAIT_S = 20.0
# Characters of a page's text in a failure.
_MAX_TEXT = 2000


class Chromium:
    """The browser. Skips the test where there is none."""

    def __enter__(self) -> Chromium:
        program = chromium()
        self._folder = tempfile.TemporaryDirectory(prefix="dragoman-", ignore_cleanup_errors=True)
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        wrapper = [sys.executable, "-c", _WITH_PIPES, str(commands), str(answers)]
        options = [*OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = running([*wrapper, program, *options], self._folder.name, (commands, answers))
        self._process.__enter__()
        os.close(commands)
        os.close(answers)
        self._ids = itertools.count(1)
        self._waiting: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__(None, None, None)
        self._reader.join(DEADLINE_S)
        os.close(self._commands)
        os.close(self._answers)
        self._folder.cleanup()

    def open(self, url: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> Page:
        """Open a page in a new tab."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session, target)
        self._listeners[session] = page.take
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Performance.enable", {"timeDomain": "threadTicks"})  # CPU time
        page.look(width, height, dark=dark)
        page.go(url)
        return page

    def call(
        self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._ids)
        self._waiting[number] = answers = queue.Queue()
        message = {"id": number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        with self._lock:
            while data:
                data = data[os.write(self._commands, data) :]
        answer = answers.get(timeout=DEADLINE_S)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> None:
        rest = b""
        while data := os.read(self._answers, 1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._waiting.pop(message["id"]).put(message)
                elif (listen := self._listeners.get(message.get("sessionId", ""))) is not None:
                    listen(message["method"], message["params"])


class Page:
    """A tab.

    Attributes:
        problems: What its console says: errors, exceptions, and violations of its policy.
    """

    def __init__(self, browser: Chromium, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target
        self.problems: list[str] = []

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call a method of the protocol for this tab."""
        return self._browser.call(method, parameters, self._session)

    def take(self, method: str, parameters: dict[str, Any]) -> None:
        """Note what an event says of the page."""
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded":
            entry = parameters["entry"]
            # The browser itself notes each response of 400 and above.
            if entry["level"] in ("error", "warning") and entry["source"] != "network":
                self.problems.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(parameters["args"]))

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", {"targetId": self._target})

    def go(self, url: str) -> None:
        """Load a page."""
        self.call("Page.navigate", {"url": url})
        self.wait_for(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def look(self, width: int, height: int, *, dark: bool) -> None:
        """Have the window of this size and the system's colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]})

    def run(self, script: str) -> Any:
        """Return the value of an expression, awaited if it is a promise."""
        options = {"expression": script, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        result = self.call("Runtime.evaluate", options)
        assert "exceptionDetails" not in result, json.dumps(result["exceptionDetails"])
        return result["result"].get("value")

    def wait_for(self, script: str, within_s: float = _WAIT_S) -> Any:
        """Wait until an expression has a value that is true, and return it."""
        deadline = time.monotonic() + within_s
        # An element has no value here.
        while not (value := self.run(f"(value => value instanceof Node || value)({script})")):
            assert time.monotonic() < deadline, (
                f"not so: {script}\n{self.text()[:_MAX_TEXT]}\n{self.problems}"
            )
            time.sleep(0.05)
        return value

    def cpu_s(self) -> float:
        """Return the CPU time that the page has taken so far, in seconds."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    def text(self) -> str:
        """Return the text that the page shows."""
        return str(self.run("document.body ? document.body.innerText : ''"))

    def press(self, key: str) -> None:
        """Press a key, and let it go."""
        event = {"key": key, "code": key, "windowsVirtualKeyCode": _KEY_CODES[key]}
        self.call("Input.dispatchKeyEvent", {"type": "rawKeyDown", **event})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **event})

    def type(self, selector: str, text: str) -> None:
        """Have a field contain this text, as if it were typed."""
        self.run(f"(document.querySelector({json.dumps(selector)}).select(), true)")
        self.call("Input.insertText", {"text": text})

    def click(self, selector: str) -> None:
        """Click on an element."""
        self.wait_for(f"document.querySelector({json.dumps(selector)})")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def screenshot(self, path: Path) -> None:
        """Write what is shown as a picture."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
