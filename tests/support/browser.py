"""A real browser with somebody at its keys: headless Chromium, driven over WebDriver, which is plain HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.acceptance.command_line import eventually
from tests.support.programs import program

_START_SECONDS = 60
_ANSWER_SECONDS = 60
# As root there is no sandbox, and nothing but the page under test shall be asked for.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1000,700",
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key that the standard gives to references


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for each process of the tests."""
    executable, driver = program("browser")
    # Not in pytest's folders: Chromium makes a socket there, and the path of a socket has to be short.
    with TemporaryDirectory(ignore_cleanup_errors=True) as own, _driver(driver, Path(own)) as port:
        opened = Browser(port, executable, Path(own))
        yield opened
        opened.close()


@pytest.fixture
def browser(chromium: Browser, tmp_path: Path) -> Iterator[Browser]:
    """An empty window; what it shows at the end is left in the folder of the test."""
    chromium.open("about:blank")
    chromium.complaints()
    yield chromium
    chromium.picture(tmp_path / "browser.png")
    chromium.open("about:blank")  # which ends the streams of the page


class Browser:
    """One window."""

    def __init__(self, port: int, chromium: str, folder: Path) -> None:
        self._port = port
        flags = [*_FLAGS, f"--user-data-dir={folder / 'profile'}"]
        options = {
            "goog:chromeOptions": {"binary": chromium, "args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self._session = f"/session/{answer['sessionId']}"

    def open(self, url: str) -> None:
        """Go to a page, and return once it is loaded."""
        self._ask("POST", "/url", {"url": url})

    def text(self, selector: str) -> str:
        """Return the text of an element with all its white space."""
        return str(self.script("return document.querySelector(arguments[0]).textContent", selector))

    def attribute(self, selector: str, name: str) -> str:
        """Return an attribute of an element."""
        script = "return document.querySelector(arguments[0]).getAttribute(arguments[1])"
        return str(self.script(script, selector, name))

    def script(self, text: str, *arguments: object) -> Any:
        """Run a function's body in the page, and return what it returns."""
        return self._ask("POST", "/execute/sync", {"script": text, "args": arguments})

    def until(self, script: str, wanted: object) -> None:
        """Wait until a script in the page returns this."""
        eventually(lambda: bool(self.script(script) == wanted), f"{script} is {wanted!r}")

    def write(self, selector: str, text: str) -> None:
        """Type a text in place of what a field holds."""
        element = self._find(selector)
        self._ask("POST", f"/element/{element}/clear", {})
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def click(self, selector: str) -> None:
        self._ask("POST", f"/element/{self._find(selector)}/click", {})

    def until_text(self, selector: str, condition: Callable[[str], bool]) -> str:
        """Wait until the text of an element is as wanted, and return it."""
        seen = ""

        def holds() -> bool:
            nonlocal seen
            seen = self.text(selector)
            return condition(seen)

        try:
            eventually(holds, f"{selector} is as wanted")
        except AssertionError:
            raise AssertionError(f"{selector} stayed {seen!r}; complaints: {self.complaints()}") from None
        return seen

    def complaints(self) -> list[str]:
        """What was written to the console since the last call: errors of scripts, requests that failed."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def close(self) -> None:
        self._ask("DELETE", "")

    def _find(self, selector: str) -> str:
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        return self._call(method, self._session + path, body)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            value = json.load(answer)["value"]
        finally:
            connection.close()
        assert answer.status == 200, value
        return value


@contextmanager
def _driver(executable: str, folder: Path) -> Iterator[int]:
    """Run the driver, and with it whatever it starts; yields its port."""
    places = {name: str(folder) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    driver = subprocess.Popen(
        [executable, "--port=0", f"--log-path={folder / 'driver.log'}"],
        stdout=subprocess.PIPE,
        env={**os.environ, **places},
        start_new_session=True,
    )
    try:
        yield _port_of(driver)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()


def _port_of(driver: subprocess.Popen[bytes]) -> int:
    assert driver.stdout
    said = b""
    while select.select([driver.stdout], [], [], _START_SECONDS)[0]:
        line = driver.stdout.readline()
        assert line, f"the driver ended: {said.decode()}"
        said += line
        if line.startswith(b"ChromeDriver was started successfully on port "):
            return int(line.rstrip(b".\n").rpartition(b" ")[2])
    raise AssertionError(f"the driver does not say its port: {said.decode()}")
