"""The page of examples/browser in a real browser, before a real server and worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.acceptance.command_line import CommandLine, Started, environment, eventually
from tests.support.browser import Browser
from tests.support.processes import unused_port

pytest_plugins = ("tests.support.browser", "tests.support.esbuild")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "browser"
SCRIPT, RUN, STATUS, LOG = "[name=script]", "button", "[role=status]", "[role=log]"
# Attempt and sequence as the server writes them: the start of the process is the first event.
LAST_OF_100_LINES = f"1-{101:x}"


class Site:
    """A server and a worker, and before them what serves the page, each to be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://localhost:{unused_port()}"
        self._folder = folder
        self._listen = f"127.0.0.1:{unused_port()}"
        self._person = CommandLine(folder=folder, variables={"AIRUNNER_SERVER": f"http://{self._listen}"})
        self._processes = ExitStack()
        self._server: Started | None = None
        self._worker: Started | None = None
        self._pages: subprocess.Popen[bytes] | None = None

    @property
    def streams(self) -> list[str]:
        """How each request for events began and was answered: "after 1-3: 200"."""
        printed = (self._folder / "pages.log").read_text().splitlines()
        return [line.rpartition("/events")[2].lstrip(" :") for line in printed if "/events" in line]

    def start_server(self, data: str = "data") -> None:
        asked = ("server", "--no-auth", "--listen", self._listen, "--data-dir", data)
        self._server = self._processes.enter_context(self._person.start(*asked))
        self._server.wait_for("airunner server listening on ")

    def kill_server(self) -> None:
        assert self._server
        self._server.process.kill()
        self._server.process.wait()

    def start_worker(self, *options: str) -> None:
        self._worker = self._processes.enter_context(self._person.start("worker", *options))
        self._worker.wait_for("airunner worker serves")

    def kill_worker(self) -> None:
        assert self._worker
        self._worker.process.kill()
        self._worker.process.wait()

    def start_pages(self) -> None:
        port = self.url.rpartition(":")[2]
        with (self._folder / "pages.log").open("ab") as log:
            self._pages = subprocess.Popen(
                [sys.executable, EXAMPLE / "serve.py", "--port", port, "--folder", self._folder / "page"],
                env=environment(**self._person.variables),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._processes.callback(self.kill_pages)
        assert self._pages.stdout
        assert self._pages.stdout.readline() == f"open {self.url}\n".encode()

    def kill_pages(self) -> None:
        pages, self._pages = self._pages, None
        if pages:
            pages.kill()
            pages.communicate()

    def close(self) -> None:
        self._processes.close()


@pytest.fixture
def site(tmp_path: Path, browser_client: Path) -> Iterator[Site]:
    shutil.copytree(EXAMPLE, tmp_path / "page")
    shutil.copy(browser_client, tmp_path / "page" / "client.js")
    site = Site(tmp_path)
    try:
        site.start_server()
        site.start_worker()
        site.start_pages()
        yield site
    finally:
        site.close()


@pytest.fixture
def go_on(tmp_path: Path) -> Iterator[Path]:
    """A job that reads it waits until it is written, or until the test is over."""
    fifo = tmp_path / "go-on"
    os.mkfifo(fifo)
    yield fifo
    with suppress(OSError):  # nobody reads
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))


def run(browser: Browser, site: Site, script: str) -> None:
    browser.open(site.url)
    browser.write(SCRIPT, script)
    browser.click(RUN)


def until_status(browser: Browser, ending: str) -> None:
    browser.until_text(STATUS, lambda text: text.endswith(ending))


def lines(first: int, last: int) -> str:
    return "".join(f"{number}\n" for number in range(first, last + 1))


def test_the_page_shows_each_line_live_and_then_how_the_job_ended(
    browser: Browser, site: Site, go_on: Path
) -> None:
    # The character is cut in two, and its halves come in two outputs.
    run(browser, site, rf"echo one; printf '\303'; cat {go_on}; printf '\244\n'; echo two >&2; exit 3")
    browser.until_text(LOG, lambda text: text.startswith("one\n"))
    until_status(browser, " runs.")
    go_on.write_bytes(b"")
    until_status(browser, " failed: exited with code 3.")
    assert browser.text(LOG) in {"one\nä\ntwo\n", "one\ntwo\nä\n"}  # of two streams each has its own order
    assert browser.text(f"{LOG} .stderr") == "two\n"
    assert browser.complaints() == []


def test_a_connection_that_breaks_goes_on_after_the_last_line(
    browser: Browser, site: Site, go_on: Path
) -> None:
    run(browser, site, f"seq 1 100; cat {go_on}; seq 101 200")
    browser.until_text(LOG, lambda text: text == lines(1, 100))
    site.kill_pages()
    until_status(browser, "trying again.")
    site.start_pages()
    until_status(browser, " runs.")
    go_on.write_bytes(b"")
    until_status(browser, " completed: exit code 0.")
    assert browser.text(LOG) == lines(1, 200)
    assert site.streams == ["200", f"after {LAST_OF_100_LINES}: 200"]


def test_a_server_that_is_restarted_costs_no_line_and_repeats_none(
    browser: Browser, site: Site, go_on: Path
) -> None:
    run(browser, site, f"seq 1 100; cat {go_on}; seq 101 200")
    browser.until_text(LOG, lambda text: text == lines(1, 100))
    site.kill_server()
    eventually(lambda: any("502" in stream for stream in site.streams), "the browser is refused")
    until_status(browser, "trying again.")
    site.start_server()
    until_status(browser, " runs.")
    go_on.write_bytes(b"")
    until_status(browser, " completed: exit code 0.")
    assert browser.text(LOG) == lines(1, 200)
    # A source that is refused gives up, and the next knows of no last event: the client leaves out the rest.
    first, resumed, *begun_anew = site.streams
    assert (first, resumed) == ("200", f"after {LAST_OF_100_LINES}: 502")
    assert begun_anew == ["502"] * (len(begun_anew) - 1) + ["200"]


def test_a_second_attempt_is_shown_as_one(browser: Browser, site: Site, go_on: Path) -> None:
    site.kill_worker()
    site.start_worker("--visibility-timeout", "2")  # so that its job is soon another's
    been_here = go_on.with_name("been-here")
    run(browser, site, f"if mkdir {been_here}; then echo one; cat {go_on}; else echo two; fi 2>/dev/null")
    browser.until_text(LOG, lambda text: text == "one\n")
    site.kill_worker()
    site.start_worker()
    until_status(browser, " completed: exit code 0.")
    assert browser.text(LOG) == "one\n(attempt 2)\ntwo\n"


def test_a_job_that_the_server_does_not_know_is_not_asked_for_again(
    browser: Browser, site: Site, go_on: Path
) -> None:
    run(browser, site, f"echo one; cat {go_on}")
    browser.until_text(LOG, lambda text: text == "one\n")
    site.kill_server()
    site.start_server(data="other-data")
    browser.until_text(STATUS, lambda text: " cannot be watched: " in text)
    assert browser.text(LOG) == "one\n"


def test_a_job_that_cannot_be_sent_is_said_to_be(browser: Browser, site: Site) -> None:
    site.kill_server()
    run(browser, site, "echo one")
    until_status(browser, "Not sent: the answer was HTTP 502.")
