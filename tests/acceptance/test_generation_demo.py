"""`make generation-demo`: all processes of a generation queue, and its page in a real browser."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyqwest import SyncClient

from airunner.client.loop_thread import LoopThread
from tests.acceptance.command_line import environment, eventually, is_alive
from tests.support.browser import Browser
from tests.support.faulty_proxy import FaultyProxy, faulty_proxy

pytest_plugins = ("tests.support.browser",)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "generation_demo.py"
LIMIT_SECONDS = 300.0
PROMPT, ORDER, NEWEST, CREDITS = "[name=prompt]", "button", "li:first-child", "#credits"
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
# Where `make screenshots` wants the pictures of the pages; a test that is just run changes no file.
SCREENSHOTS = "SCREENSHOTS"


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo that has shown what it has to show, and stays."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def shown(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def complaints(self) -> str:
        """What it had to complain about."""
        return (self.folder / "err").read_text()

    @property
    def page(self) -> str:
        return re.search(r"^  page +pid \d+ +(\S+)$", self.shown, re.MULTILINE)[1]  # type: ignore[index]

    @property
    def pids(self) -> list[int]:
        return [int(found) for found in re.findall(r"^  \w+ +pid (\d+)", self.shown, re.MULTILINE)]

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LIMIT_SECONDS)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One for the tests of this file: its start takes longer than any of them. It cleans up behind it."""
    folder = tmp_path_factory.mktemp("demo")
    with TemporaryDirectory() as temporary, started(folder, temporary) as demo:
        eventually(
            lambda: "Ctrl-C ends it" in demo.shown or demo.process.poll() is not None,
            "the demo stays",
            LIMIT_SECONDS,
        )
        assert demo.process.poll() is None, demo.complaints
        yield demo
        assert len(demo.pids) == 7
        assert demo.end() == 0
        assert demo.complaints == ""
        assert not any(is_alive(pid) for pid in demo.pids)
        assert not any(Path(temporary).iterdir())


@contextmanager
def started(folder: Path, temporary: str) -> Iterator[Demo]:
    # What a developer's machine may have set for other purposes.
    misleading = dict.fromkeys(("START_GEN_WORKER", "INTEGRATION_USE_MOCK", "DATABASE_URL"), "true")
    variables = environment(TMPDIR=temporary, **misleading)
    Path(temporary).chmod(0o711)  # nobody, who PostgreSQL is under root, has a folder in it
    command = (sys.executable, str(SCRIPT), "--serve", "--pictures", str(folder / "pictures"))
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=out, stderr=err)
    try:
        yield Demo(process, folder)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(LIMIT_SECONDS)


@pytest.fixture
def window(browser: Browser, demo: Demo) -> Browser:
    """The page, with what the demo ordered."""
    browser.open(demo.page)
    browser.until_text(CREDITS, str.isdecimal)
    return browser


@contextmanager
def in_between(target: str) -> Iterator[FaultyProxy]:
    """A proxy on a thread of its own: whoever drives a browser blocks."""
    thread = LoopThread("proxy")
    proxy = faulty_proxy(target)
    try:
        yield thread.run(proxy.__aenter__())
        thread.run(proxy.__aexit__(None, None, None))
    finally:
        thread.close()


def order(browser: Browser, prompt: str) -> None:
    browser.write(PROMPT, prompt)
    browser.click(ORDER)
    browser.until_text("ol", lambda text: prompt in text)


def until_newest(browser: Browser, sentence: str) -> str:
    return browser.until_text(f"{NEWEST} .status", lambda text: sentence in text)


def credits_of(demo: Demo) -> int:
    answer = SyncClient().get(f"{demo.page}/pictures")
    return int(json.loads(bytes(answer.content))["credits"])


def test_the_demo_shows_pictures_and_the_time_of_each_hop(demo: Demo) -> None:
    shown = demo.shown
    assert re.search(r"^ +a lighthouse at dawn +captured +1( +[\d,]+){5} *$", shown, re.MULTILINE), shown
    assert re.search(r"^ +\[busy\] green hills +captured +2( +[\d,]+){5} *$", shown, re.MULTILINE)
    assert re.search(r"^ +\[refused\] a banknote +refunded +1( +[\d,]+){5} *$", shown, re.MULTILINE)
    assert "content_policy, the provider does not paint this" in shown
    assert "8 of 10 credits are left" in shown
    assert "asked 4 times and painted 2 pictures" in shown
    told = re.findall(r"^  (\S+\.png)\n  ([\d,]+) bytes, SHA-256 (\w{64})$", shown, re.MULTILINE)
    assert len(told) == 2
    for path, size, digest in told:
        content = Path(path).read_bytes()
        assert (f"{len(content):,}", hashlib.sha256(content).hexdigest()) == (size, digest)


def test_a_demo_that_is_interrupted_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    with TemporaryDirectory() as temporary, started(tmp_path, temporary) as demo:
        eventually(lambda: "generation demo" in demo.shown, "it has begun", LIMIT_SECONDS)
        assert (demo.end(), demo.complaints) == (130, "")
        assert not any(Path(temporary).iterdir())


@pytest.mark.browser
def test_an_order_runs_and_becomes_a_picture(window: Browser, demo: Demo) -> None:
    before = credits_of(demo)
    order(window, "[slow] mountains in the mist")
    assert window.text(CREDITS) == str(before - 1)
    until_newest(window, "Being painted.")
    if folder := os.environ.get(SCREENSHOTS):
        window.picture(Path(folder) / "generation.png")
    until_newest(window, "Done.")
    window.until(f"return document.querySelector('{NEWEST} img')?.naturalWidth", 384)
    assert window.attribute(f"{NEWEST} img", "alt") == "[slow] mountains in the mist"
    assert credits_of(demo) == before - 1
    assert window.complaints() == []


@pytest.mark.browser
def test_a_failure_shows_why_and_that_the_credit_is_back(window: Browser, demo: Demo) -> None:
    before = credits_of(demo)
    order(window, "[refused] one more banknote")
    said = until_newest(window, "Failed")
    assert said == "Failed: the provider does not paint this. Your credit was refunded."
    assert window.text(CREDITS) == str(before) == str(credits_of(demo))


@pytest.mark.browser
def test_a_prompt_with_markup_stays_text(window: Browser) -> None:
    order(window, HOSTILE)
    until_newest(window, "Done.")
    assert window.text(f"{NEWEST} .prompt") == HOSTILE
    assert window.attribute(f"{NEWEST} img", "alt") == HOSTILE
    assert window.script("return document.title") == "Pictures"
    assert window.script("return document.querySelectorAll('li script, li .prompt *').length") == 0
    assert window.complaints() == []


@pytest.mark.browser
def test_a_stream_that_is_cut_goes_on(browser: Browser, demo: Demo) -> None:
    with in_between(demo.page) as proxy:
        browser.open(proxy.url)
        browser.until_text(CREDITS, str.isdecimal)
        order(browser, "[slow] a bridge")
        until_newest(browser, "Being painted.")
        browser.script(WATCH_STATUS)
        known = proxy.connections
        proxy.reset_all()
        until_newest(browser, "Done.")
        assert proxy.connections > known
        seen = browser.script("return window.seen")
        # A verdict is shown once, whatever was heard again.
        assert seen[0] == "The connection broke; trying again."
        assert seen.count("Done.") == 1
        assert browser.script(f"return document.querySelectorAll('{NEWEST} img').length") == 1


WATCH_STATUS = f"""
window.seen = [];
const status = document.querySelector("{NEWEST} .status");
new MutationObserver(() => window.seen.push(status.textContent)).observe(status, {{ childList: true }});
"""
