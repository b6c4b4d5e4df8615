"""The demo of a fleet: `make fleet-demo` lets one work, lets it break, and shows how it cleans up.

It starts an emulated AWS and a server with the fleet's processors, launches instances of a pool, and runs
real runners on them. One runner is killed; an old instance and a parameter stay behind. Then all four tasks
of housekeeping run, and what they did, and why, is printed. Nobody waits for hours: what would be seen later
is seen by a clock that is ahead.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from airunner.app import build_fleet_connection, open_store_beside, provision_fleet
from airunner.cli.fleet_text import print_report, print_run
from airunner.client import AsyncClient
from airunner.config import Settings, load_settings, process_environment
from airunner.domain.clock import SystemClock
from airunner.domain.errors import AirunnerError
from airunner.domain.fleet import HousekeepingRun, Pool, TaskType
from airunner.domain.job import JobParams
from airunner.fleet.assignment import Assignments, RunnerAccess
from airunner.fleet.aws.connection import FleetConnection
from airunner.fleet.aws.instances import MANAGED_TAG, POOL_TAG
from airunner.fleet.messages.housekeeping import HousekeepingMessage
from airunner.fleet.office import FleetDesk
from airunner.fleet.records import InstanceState
from airunner.fleet.start import make_housekeeper
from airunner.local.aws_plan import emulated
from airunner.local.child_stack import ChildStack, start_loopback
from airunner.local.emulator import EmulatorProcess

POOL: Final = "builds"
TYPE: Final = "m7i.large"
LIMIT_SECONDS: Final = 300
STEP_SECONDS: Final = 90
MINUTE: Final = 60
DAY: Final = 24 * 3600
IMAGE: Final = "ami-12c6146b"


class ClockAhead(SystemClock):
    """The clock of this machine, so many seconds ahead."""

    def __init__(self, seconds: int) -> None:
        self._ahead_ms = seconds * 1000

    def now(self) -> int:
        """Return the instant, in Unix milliseconds."""
        return super().now() + self._ahead_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What runs, and where."""

    emulator: EmulatorProcess
    stack: ChildStack
    variables: dict[str, str]
    settings: Settings
    fleet: FleetConnection
    client: AsyncClient
    server: str


async def demo(folder: Path) -> None:
    """Show a life of a fleet; AirunnerError or AssertionError where it does not end well."""
    async with AsyncExitStack() as opened:
        site = await start(opened, folder)
        say("pools and instances appear")
        await site.fleet.records.put_pool(Pool(name=POOL, instance_type=TYPE, desired_running=3))
        instances = await launch(site, 4)
        for instance in instances[:3]:
            await assign(site, instance)
        say(f"  {len(instances)} instances of pool {POOL}, three of them assigned to queue {POOL}")
        await work(site, instances, folder)
        await leave_things_behind(site, instances)
        await clean_up(site)
        await check(site, instances)


async def start(opened: AsyncExitStack, folder: Path) -> Site:
    """Start everything that the demo needs."""
    say("starting an emulated AWS, and a server with the processors of a fleet")
    emulator = await start_loopback(opened, EmulatorProcess())
    stack = await opened.enter_async_context(ChildStack(folder))
    variables = {
        **{name: text for name, text in process_environment().items() if name in {"PATH", "HOME", "LANG"}},
        **emulated(emulator.url),
        "AIRUNNER_DATA_DIR": str(folder / "data"),
        "AIRUNNER_DEFAULTS__VISIBILITY_TIMEOUT_SECONDS": "5",
        "AIRUNNER_LIMITS__MAINTENANCE_INTERVAL_SECONDS": "1",
        "AIRUNNER_FLEET__TABLE": "airunner_demo_fleet",
        "AIRUNNER_FLEET__RUN": "termination,housekeeping",
        "AIRUNNER_FLEET__PRICES": f"{TYPE}=0.1008",
        "AIRUNNER_FLEET__RUNNER_API_KEY": "ak_of_the_demo",
        "AIRUNNER_FLEET__CLOUDWATCH_NAMESPACE": "",
        "AIRUNNER_STORE__AWS__ENV": "demo",
        "AIRUNNER_STORE__AWS__ACCESS_KEY_ID": "demo",
        "AIRUNNER_STORE__AWS__SECRET_ACCESS_KEY": "demo",
    }
    settings = load_settings(environ=variables, cwd=folder).settings
    await provision_fleet(settings)
    options = ("--listen", "127.0.0.1:0", "--no-auth")
    server = await stack.start(
        "server", *options, awaited="airunner server listening on", environment=variables
    )
    url = await server.ready()
    return Site(
        emulator=emulator,
        stack=stack,
        variables={**variables, "AIRUNNER_SERVER": url},
        settings=settings,
        fleet=await opened.enter_async_context(build_fleet_connection(settings)),
        client=await opened.enter_async_context(AsyncClient(url)),
        server=url,
    )


async def launch(site: Site, count: int) -> list[str]:
    """Launch instances of the pool; return their ids."""
    tags = [{"Key": MANAGED_TAG, "Value": "true"}, {"Key": POOL_TAG, "Value": POOL}]
    answer = await site.fleet.aws.ec2(
        "RunInstances",
        ImageId=IMAGE,
        MinCount=count,
        MaxCount=count,
        InstanceType=TYPE,
        # A call that is repeated launches no more.
        ClientToken=uuid.uuid4().hex,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return [entry["InstanceId"] for entry in answer["Instances"]]


async def assign(site: Site, instance: str) -> None:
    """Give an instance its work, as `airunner fleet assign` does."""
    access = RunnerAccess(servers=(site.server,), api_key=site.settings.fleet.runner_api_key_text)
    ports = (site.fleet.instances, site.fleet.records, site.fleet.parameters)
    await Assignments(*ports, access, SystemClock()).assign(instance, POOL)


async def work(site: Site, instances: list[str], folder: Path) -> None:
    """Let jobs run: one in peace, and one whose first runner dies."""
    say("jobs run")
    first = (await site.client.enqueue(JobParams(command="echo", args=("built",)), queue=POOL)).job_id
    await run_to_end(site, instances[0])
    await done(site, first, instances[0])
    mark = folder / "begun"
    script = f"if [ -e {mark} ]; then echo again; else touch {mark}; sleep 600; fi"
    second = (await site.client.enqueue(JobParams(command="sh", args=("-c", script)), queue=POOL)).job_id
    runner = await runner_of(site, instances[1])
    async with asyncio.timeout(STEP_SECONDS):
        while not mark.exists():  # noqa: ASYNC110  another process makes it
            await asyncio.sleep(0.1)
    runner.kill()
    await runner.wait()
    say(f"  the runner of {instances[1]} was killed in the midst of its job, and reports nothing")
    await run_to_end(site, instances[2])
    await done(site, second, instances[2])


async def runner_of(site: Site, instance: str) -> asyncio.subprocess.Process:
    """Start the real runner of an instance."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airunner.cli", "fleet", "runner", "--log-level", "error"),
        cwd=site.stack.folder,
        env={**site.variables, "AIRUNNER_INSTANCE_ID": instance},
        stdin=asyncio.subprocess.DEVNULL,
    )


async def run_to_end(site: Site, instance: str) -> None:
    """Run one job on an instance."""
    runner = await runner_of(site, instance)
    try:
        async with asyncio.timeout(STEP_SECONDS):
            code = await runner.wait()
    finally:
        if runner.returncode is None:
            runner.kill()
    assert code == 0, f"the runner of {instance} ended with {code}"


async def done(site: Site, job_id: str, instance: str) -> None:
    """Wait until a job is done, and its books are closed."""
    async with asyncio.timeout(STEP_SECONDS):
        job = await site.client.get_job(job_id, wait_seconds=60)
        while instance in await configured(site):  # noqa: ASYNC110  another process deletes it
            await asyncio.sleep(0.2)
    assert job.result, job
    assert job.result.success, job
    say(f"  {job_id} ended on {instance} at attempt {job.attempt}; its configuration is deleted")


async def configured(site: Site) -> list[str]:
    """Return the instances that have a configuration."""
    parameters = site.fleet.parameters
    return [parameters.instance_of(found.name) async for page in parameters.list() for found in page]


async def leave_things_behind(site: Site, instances: list[str]) -> None:
    """Let the machine of the dead runner go, and another one be forgotten for two days."""
    dead, forgotten = instances[1], instances[3]
    await site.fleet.instances.terminate([dead])
    name = site.fleet.parameters.name_of(dead)
    await asyncio.to_thread(site.emulator.backdate, 2 * 3600, parameters=[name])
    await asyncio.to_thread(site.emulator.backdate, 2 * DAY, instances=[forgotten])
    say(f"{dead} is gone, and left its configuration; {forgotten} was launched two days ago, and idles")


async def clean_up(site: Site) -> None:
    """Run the tasks: at first as messages to the processor, then as it would be later."""
    say("housekeeping, asked for by messages: what is seen for the first time is only marked")
    desk = FleetDesk(site.fleet, SystemClock())
    for task in (TaskType.ORPHANED_INSTANCES, TaskType.STALE_SSM, TaskType.POOL_AUDIT):
        slot = await site.client.run_housekeeping(task)
        print_run(await recorded(site, slot))
    say("six minutes later")
    for task in (TaskType.ORPHANED_INSTANCES, TaskType.STALE_SSM):
        print_run(await run_later(site, task, 6 * MINUTE))
    say("an hour later")
    print_run(await run_later(site, TaskType.POOL_AUDIT, 60 * MINUTE))
    print_report(await desk.report(24))
    say("eight days later")
    print_run(await run_later(site, TaskType.OLD_JOBS, 8 * DAY))


async def recorded(site: Site, slot: str) -> HousekeepingRun:
    """Return the run of a slot, once the processor has made it."""
    async with asyncio.timeout(STEP_SECONDS):
        while not (run := await site.fleet.records.find_run(slot)):  # noqa: ASYNC110  another keeps it
            await asyncio.sleep(0.2)
    return run


async def run_later(site: Site, task: TaskType, seconds: int) -> HousekeepingRun:
    """Run a task by a clock that is ahead, on the same store and the same records."""
    clock = ClockAhead(seconds)
    store = open_store_beside(site.settings, must_exist=True)
    await store.open()
    try:
        housekeeper = make_housekeeper(site.settings, site.fleet, store, clock)
        return await housekeeper.run(HousekeepingMessage(task_type=task, timestamp=clock.now()))
    finally:
        await store.close()


async def check(site: Site, instances: list[str]) -> None:
    """Make sure that all is clean."""
    found = await site.fleet.instances.find(instances)
    states = [found[name].state if name in found else InstanceState.TERMINATED for name in instances]
    running = InstanceState.RUNNING
    assert states == [running, InstanceState.TERMINATED, running, InstanceState.TERMINATED], states
    assert await configured(site) == []
    say("all is clean: the orphan is terminated, the configuration deleted, the old jobs purged")


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def main() -> int:
    """Run the demo; return the exit code."""

    async def limited(folder: Path) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await demo(folder)

    with tempfile.TemporaryDirectory(prefix="airunner-fleet-") as folder:
        try:
            asyncio.run(limited(Path(folder)))
        except (AirunnerError, AssertionError, TimeoutError) as error:
            say(f"the demo failed: {getattr(error, 'text', '') or str(error) or type(error).__name__}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
