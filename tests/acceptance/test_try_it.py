"""`airunner demo` and `airunner dev`: what a newcomer types first."""

from __future__ import annotations

import re
import signal

import pytest

from tests.acceptance.command_line import CommandLine, eventually, is_alive


def test_the_demo_shows_three_jobs_and_cleans_up(person: CommandLine) -> None:
    # The other variable is one that a machine may have for its own purposes.
    done = person.run("demo", TMPDIR=str(person.folder), START_GEN_WORKER="true")
    shown = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert "step 6 of 6" in shown
    assert re.search(r"failing +FAILED +3 ", shown)
    assert re.search(r"lines +COMPLETED +0 .* 10,000 +20[0-5] ", shown)
    assert not any(person.folder.iterdir())
    for pid in re.findall(r"pid (\d+)", shown):
        assert not is_alive(int(pid))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_cleans_up_when_it_is_interrupted(person: CommandLine, number: signal.Signals) -> None:
    folder = person.folder / "temporary"
    folder.mkdir()
    with person.start("demo", TMPDIR=str(folder)) as demo:
        eventually(lambda: b"step 1 of 6" in demo.out, "the jobs have begun")
        demo.send(number)
        assert demo.ended() == 130
        assert demo.err == ""
        for pid in re.findall(rb"pid (\d+)", demo.out):
            assert not is_alive(int(pid))
    assert not any(folder.iterdir())


def test_dev_serves_and_works_until_ctrl_c(person: CommandLine) -> None:
    source = 'from airunner import handler\n@handler("greet")\ndef greet(): print("hello from a function")\n'
    (person.folder / "tools.py").write_text(source)
    with person.start("dev", "--listen", "127.0.0.1:0", "--handlers", "tools.py") as dev:
        url = dev.wait_for("airunner dev ready on").partition(",")[0]
        done = person.run("run", "--server", url, "--", "echo", "hello")
        assert (done.stdout, done.returncode) == (b"hello\n", 0)
        done = person.run("run", "--server", url, "--handler", "greet")
        assert (done.stdout, done.returncode) == (b"hello from a function\n", 0)
        dev.send(signal.SIGINT)
        assert dev.ended() == 0
        assert dev.err.index("worker.end") < dev.err.index("server.stopped")
    assert (person.folder / ".airunner" / "airunner.db").exists()
