from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airunner.domain.event import Output, StreamType
from airunner.domain.job import JobState, ProcessType
from tests.support.child_processes import nothing_left_behind
from tests.support.workers import Bench, Log, working

pytestmark = pytest.mark.usefixtures("nothing_left_behind")
__all__ = ["nothing_left_behind"]

SECRET = 'hunter2 "hunter/3"'
KEY = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA7\nq1w2e3r4t5y6\n-----END KEY-----"


async def print_secrets(bench: Bench, script: str, secret: str = SECRET, **params: Any) -> Log:
    """Do a job whose script has the secret in `secret` and `say`, which writes at once."""
    begin = (
        "import base64, json, os, sys, urllib.parse\n"
        "secret = os.environ['TOKEN']\n"
        "def say(text, to=1): os.write(to, text.encode())\n"
    )
    variables = {"environment": {"TOKEN": secret}, "secret_names": ("TOKEN",)}
    log = await bench.do(sys.executable, "-c", begin + script, **variables | params)
    assert log.job.state is JobState.COMPLETED, log.output()
    assert_hidden(log, secret)
    return log


def assert_hidden(log: Log, secret: str) -> None:
    forms = [
        secret,
        base64.b64encode(secret.encode()).decode().rstrip("="),
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
    ]
    stored = log.output().decode("utf-8", "replace") + f"{log.job!r} {log.events!r}"
    for form in forms:
        assert form not in stored


async def test_a_secret_is_redacted_in_every_form(tmp_path: Path) -> None:
    script = """
say(f'plain {secret}!\\n')
say(f'base64 {base64.b64encode(secret.encode()).decode()}!\\n')
say(f'url {urllib.parse.quote(secret, safe="")}!\\n')
say(f'json {json.dumps(secret)}!\\n', 2)
"""
    async with working(tmp_path) as bench:
        log = await print_secrets(bench, script)
    assert log.output(StreamType.STDOUT) == b"plain [redacted]!\nbase64 [redacted]!\nurl [redacted]!\n"
    assert log.output(StreamType.STDERR) == b'json "[redacted]"!\n'


@pytest.mark.parametrize("stream", [StreamType.STDOUT, StreamType.STDERR])
async def test_a_secret_in_parts_is_held_back_until_it_is_whole(tmp_path: Path, stream: StreamType) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = (
        f"import os\ndef say(text): os.write({1 if stream is StreamType.STDOUT else 2}, text.encode())\n"
        f"secret = os.environ['TOKEN']\nsay('go ' + secret[:9])\nopen({str(gate)!r}).close()\n"
        "say(secret[9:] + '. end')"
    )
    variables: dict[str, Any] = {"environment": {"TOKEN": SECRET}, "secret_names": ("TOKEN",)}
    async with working(tmp_path) as bench:
        job_id = await bench.submit(sys.executable, "-c", script, **variables)
        assert await bench.first_output(job_id) == b"go "
        gate.open("w").close()
        log = await bench.log_of(job_id)
    assert log.output(stream) == b"go [redacted]. end"
    assert_hidden(log, SECRET)


@pytest.mark.parametrize("process_type", list(ProcessType))
async def test_a_secret_of_many_lines_is_redacted(tmp_path: Path, process_type: ProcessType) -> None:
    script = "say('before\\n')\nfor line in secret.splitlines(): say(line + '\\n')\nsay('after\\n')"
    async with working(tmp_path) as bench:
        log = await print_secrets(bench, script, secret=KEY, process_type=process_type)
    assert log.output().replace(b"\r", b"") == b"before\n[redacted]\nafter\n"


async def test_a_secret_is_redacted_across_batches_and_pieces_of_a_long_line(tmp_path: Path) -> None:
    script = """
for before in range(64 * 1024 - 20, 64 * 1024 + 2, 3):
    say('.' * before + secret + '\\n')
"""
    async with working(tmp_path) as bench:
        log = await print_secrets(bench, script)
    lengths = range(64 * 1024 - 20, 64 * 1024 + 2, 3)
    assert log.output() == b"".join(b"." * length + b"[redacted]\n" for length in lengths)


@pytest.mark.parametrize("descriptor", [1, 2])
async def test_lines_stay_events_and_the_held_tail_comes_at_the_end(tmp_path: Path, descriptor: int) -> None:
    async with working(tmp_path) as bench:
        script = f"say('one\\n\\ntwo ' + secret + '\\nand hunt', {descriptor})"
        log = await print_secrets(bench, script)
    outputs = [event.data.output for event in log.events if isinstance(event.data, Output)]
    assert outputs == [b"one\n", b"\n", b"two [redacted]\n", b"and ", b"hunt"]


async def test_a_quiet_prompt_is_not_held_back(tmp_path: Path) -> None:
    variables: dict[str, Any] = {"environment": {"TOKEN": SECRET}, "secret_names": ("TOKEN",)}
    async with working(tmp_path) as bench:
        job_id = await bench.submit("sh", "-c", "printf 'Continue? '; exec sleep 1000", **variables)
        assert await bench.first_output(job_id) == b"Continue? "
        await bench.services.jobs.cancel_job(job_id)
        await bench.end_of(job_id)


async def test_why_a_command_could_not_start_is_told_without_its_secret(tmp_path: Path) -> None:
    variables: dict[str, Any] = {"environment": {"TOKEN": "hunter2-hunter2"}, "secret_names": ("TOKEN",)}
    async with working(tmp_path) as bench:
        log = await bench.do("no-hunter2-hunter2-here", **variables)
    assert log.result.error_message == "command not found: no-[redacted]-here"
    assert log.errors == [log.result.error_message]


async def test_the_operator_names_secrets_by_pattern(tmp_path: Path) -> None:
    base = {"PATH": "/usr/bin:/bin", "DEPLOY_KEY": "of-the-worker", "SHOWN": "visible"}
    variables = {"A_TOKEN": "of-the-job", "B_TOKEN": "tiny"}
    async with working(tmp_path, base_environment=base, redact_names=("*_TOKEN", "DEPLOY_*")) as bench:
        script = 'echo "$DEPLOY_KEY $A_TOKEN $B_TOKEN $SHOWN"'
        log = await bench.do("sh", "-c", script, environment=variables)
    assert log.output() == b"[redacted] [redacted] tiny visible\n"
