"""A real browser without a window, driven by its own protocol over a pipe: no driver and no package is needed."""

import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")


def find_browser() -> str | None:
    """The browser's program: $REGMIXUP_BROWSER, one on the path, or one that tests/browser/install.sh fetched."""
    named = os.environ.get("REGMIXUP_BROWSER")
    if named:
        return named
    fetched = sorted((Path(__file__).parents[2] / ".venv" / "browsers").glob("chrom*/*/*headless*shell"))
    return next((found for name in NAMES if (found := shutil.which(name))), str(fetched[-1]) if fetched else None)


class Chromium:
    """One browser with one page. `events` collects everything that it reports."""

    def __init__(self, program: str, profile: Path) -> None:
        pipes = [*os.pipe(), *os.pipe()]
        # Beyond 10, so that none of them is 3 or 4, where the browser reads commands and writes answers.
        child_reads, self._commands, self._answers, child_writes = (
            fcntl.fcntl(f, fcntl.F_DUPFD_CLOEXEC, 10) for f in pipes
        )
        flags = "--headless --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run --disable-extensions"
        actions = [(os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0o600) for out in (1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, child_reads, 3), (os.POSIX_SPAWN_DUP2, child_writes, 4)]
        words = [program, *flags.split(), f"--user-data-dir={profile}"]
        self._pid = os.posix_spawn(program, words, os.environ, file_actions=actions)
        for descriptor in (*pipes, child_reads, child_writes):
            os.close(descriptor)
        self._ids, self._buffer, self._session, self.events = itertools.count(1), b"", None, []

    def __enter__(self):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.kill(self._pid, signal.SIGTERM)
        os.waitpid(self._pid, 0)
        os.close(self._commands)
        os.close(self._answers)

    def send(self, method: str, **parameters):
        """One command, and its result."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _read(self, timeout: float = 300):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], timeout)
            assert ready, "the browser does not answer"
            chunk = os.read(self._answers, 2**16)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, url: str) -> None:
        """Load a page and wait until it is complete."""
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script: str):
        """The value of a JavaScript expression."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script: str, timeout: float = 300) -> None:
        """Wait for an expression to be true."""
        end = time.monotonic() + timeout
        while not self.run(script):
            assert time.monotonic() < end, f"{script} never became true"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """A key on the keyboard, for whatever has the focus."""
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38, "Enter": 13, "Home": 36, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        common = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes[key]}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False, phone: bool = False) -> None:
        """The size of the screen, and whether its owner prefers dark pages."""
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def complaints(self) -> list:
        """Errors and warnings of the page and its script."""
        found = []
        for event in self.events:
            name, details = event.get("method"), event.get("params", {})
            if name == "Runtime.exceptionThrown":
                found.append(details["exceptionDetails"])
            elif (name == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert")) or (
                name == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning")
            ):
                found.append(details)
        return found

    def requests(self) -> list[str]:
        """Everything the page asked for, itself and what it carries included."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
