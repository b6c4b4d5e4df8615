"""What the jobs of a worker can learn of its API key: real processes, as a user who is not root."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from airunner.client import AsyncClient
from airunner.domain.job import JobParams, JobState
from tests.support.keyed_server import PRINTER, KeyedServer, keyed_server
from tests.support.processes import RunningProcess, unused_port
from tests.support.unprivileged import folder_of_nobody, through_nobody

READER = "reader"
NO_SERVER = "http://127.0.0.1:1"
# A job that looks at everybody above it, and keeps what it could read in a file.
PRYING = """
import json, os, sys
found, pid = {}, os.getpid()
while pid > 1:
    for name in ("environ", "cmdline", "mem", "fd"):
        path = f"/proc/{pid}/{name}"
        try:
            if name == "fd":
                content = os.readlink(f"{path}/0").encode()
            else:
                with open(path, "rb") as file:
                    content = b"opened" if name == "mem" else file.read()
        except OSError:
            content = b""
        found.setdefault(pid, {})[name] = content.decode(errors="replace")
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


@dataclass(frozen=True)
class Site:
    """A server with keys, and a folder in which a worker that is not root may write."""

    server: KeyedServer
    folder: Path

    @property
    def key(self) -> str:
        return self.server.keys[PRINTER]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with keyed_server(tmp_path, readers=(READER,)) as server:
        yield Site(server, folder_of_nobody(tmp_path / "worker"))


@contextmanager
def working(
    folder: Path, *options: str, server: str, through: Sequence[str], **variables: str
) -> Iterator[RunningProcess]:
    process = RunningProcess(
        *("worker", "--server", server, *options),
        log=folder / "worker.log",
        environment={"TMPDIR": str(folder), **variables},
        through=through,
    )
    try:
        yield process
    finally:
        process.abandon()


async def run(site: Site, *command: str, **environment: str) -> str:
    """Do a job; return all that its log holds."""
    params = JobParams(command=command[0], args=command[1:], environment=environment)
    async with site.server.client(PRINTER) as client, site.server.client(READER) as reader:
        job_id = (await client.enqueue(params)).job_id
        job = await reader.wait_for_end(job_id)
        log = "".join([repr(event) async for event in reader.monitor(job_id)])
    assert job.state is JobState.COMPLETED, log
    return log


@pytest.mark.parametrize("given", ["AIRUNNER_API_KEY", pytest.param("--api-key", marks=pytest.mark.slow)])
async def test_a_job_finds_the_key_of_its_worker_nowhere_below_proc(site: Site, given: str) -> None:
    options = (given, site.key) if given == "--api-key" else ()
    variables = {"FAVOURITE": "tea"} | ({} if options else {given: site.key})
    spoils = site.folder / "spoils"
    nobody = through_nobody()
    with working(site.folder, *options, server=site.server.url, through=nobody, **variables) as worker:
        log = await run(site, sys.executable, "-c", PRYING, str(spoils))
        shown = await run(site, "sh", "-c", 'echo "it is $OTHER"; exec 1>&2; echo $OTHER', OTHER=site.key)
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0

    found = json.loads(spoils.read_text())
    assert site.key not in f"{spoils.read_text()} {log} {shown} {worker.printed()}"
    assert "FAVOURITE=tea" in found.pop(next(iter(found)))["environ"]  # its own: it looks where it should
    of_worker = found[str(worker.pid)]  # the same process as the one that was started
    assert "worker" in of_worker.pop("cmdline")
    assert of_worker == {"environ": "", "mem": "", "fd": ""}
    assert shown.count("[redacted]") == 2  # and if it had come by it, nobody would see it
    assert "key_exposed" not in worker.printed()


@pytest.mark.slow
async def test_dev_conceals_what_is_in_its_environment_too(tmp_path: Path) -> None:
    folder, listen = folder_of_nobody(tmp_path / "dev"), f"127.0.0.1:{unused_port()}"
    dev = RunningProcess(
        *("dev", "--listen", listen, "--data-dir", str(folder / "data")),
        log=folder / "dev.log",
        environment={"TMPDIR": str(folder), "AIRUNNER_API_KEY": "airk_abc_def"},
        through=through_nobody(),
    )
    try:
        await dev.until_said("dev ready")
        async with AsyncClient(f"http://{listen}") as client:
            params = JobParams(command=sys.executable, args=("-c", PRYING, str(folder / "spoils")))
            job = await client.wait_for_end((await client.enqueue(params)).job_id)
        assert job.state is JobState.COMPLETED
        assert "airk_abc_def" not in (folder / "spoils").read_text()
        assert json.loads((folder / "spoils").read_text())[str(dev.pid)]["environ"] == ""
        dev.send(signal.SIGTERM)
        assert await dev.ended() == 0
    finally:
        dev.abandon()


async def test_who_started_the_worker_with_its_key_is_named(tmp_path: Path) -> None:
    # A shell that stays, and keeps the environment that it was started with.
    through = (*through_nobody(), "sh", "-c", '"$@"; exit $?', "sh")
    folder = folder_of_nobody(tmp_path / "worker")
    with working(folder, server=NO_SERVER, through=through, AIRUNNER_API_KEY="airk_abc_def") as shell:
        await shell.until_said("waiting for a server")
        assert '"event": "worker.key_exposed"' in shell.printed()
        assert f'"pid": {shell.pid}' in shell.printed()
        assert "airk_abc_def" not in shell.printed()
        (worker,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
        os.kill(int(worker), signal.SIGTERM)
        assert await shell.ended() == 0


@pytest.mark.skipif(os.getuid() != 0, reason="root is needed to run something as root")
async def test_a_worker_of_root_s_is_warned_of(tmp_path: Path) -> None:
    with working(tmp_path, server=NO_SERVER, through=(), AIRUNNER_API_KEY="airk_abc_def") as worker:
        await worker.until_said("worker.runs_as_root")


async def test_a_key_in_a_file_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    folder = folder_of_nobody(tmp_path / "worker")
    file = folder / "settings.yaml"
    file.write_text("client:\n  api_key: airk_abc_def\n")
    file.chmod(0o644)
    with working(folder, "--config", str(file), server=NO_SERVER, through=through_nobody()) as worker:
        await worker.until_said("waiting for a server")
        assert '"event": "worker.key_file_readable"' in worker.printed()
        assert "other users, and jobs can read it" in worker.printed()
        assert "airk_abc_def" not in worker.printed()
