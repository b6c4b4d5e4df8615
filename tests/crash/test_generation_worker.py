"""`airunner generation worker` as a process: it works, drains, is killed, and refuses what cannot work."""

from __future__ import annotations

import signal
from dataclasses import replace

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.testing.conditions import until
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import options_of
from tests.support.generation import effects, enqueue, send_all, until_sessions
from tests.support.generation_site import Site

pytest_plugins = ("tests.support.generation_site",)


async def test_a_worker_that_is_killed_leaves_its_work_to_the_next(site: Site) -> None:
    session_id = await enqueue(site.database, "paint", {"waits": True})
    await send_all(site.database, site.queue)
    # With one slot, which is taken, no poll of it is left that would receive what is sent below.
    worker = site.start(GEN_WORKER_CONCURRENCY="1")
    await until(lambda: site.calls == [session_id], limit_seconds=60)
    await worker.kill()
    # SQS delivers it again after two minutes; a copy stands for that.
    await site.database.execute("UPDATE airunner.outbox SET state = 'pending'")
    await send_all(site.database, site.queue)
    (site.folder / "go").touch()
    other = site.start()
    await until_sessions(site.database, done=1)
    assert site.calls == [session_id, session_id]
    assert await effects(site.database) == [(session_id, "done")]
    other.send(signal.SIGTERM)
    assert await other.ended() == 0
    log = (site.folder / "worker-1.log").read_text()
    for event in ("worker.init", "handler.registered", "job.start", "job.completed", "job.output"):
        assert event in log


async def test_a_worker_that_is_told_to_stop_finishes_what_it_has(site: Site) -> None:
    session_id = await enqueue(site.database, "paint", {"waits": True})
    await send_all(site.database, site.queue)
    worker = site.start()
    await until(lambda: site.calls == [session_id], limit_seconds=60)
    worker.send(signal.SIGTERM)
    (site.folder / "go").touch()
    assert await worker.ended() == 0
    await until_sessions(site.database, done=1)
    assert (await site.queue.depth()).in_flight == 0


async def test_a_queue_without_a_redrive_policy_is_refused(
    site: Site, aws: StrictProxy, aws_env: str
) -> None:
    async with Aws(replace(options_of(aws.url), clients=OF_A_QUEUE)) as account:
        url = (await account.sqs("CreateQueue", QueueName=f"{aws_env}-bare"))["QueueUrl"]
    worker = site.start(SQS_MAIN_QUEUE_URL=url)
    assert await worker.ended() == 2
    assert "has no redrive policy" in worker.printed()


async def test_a_server_has_a_relay_and_a_worker_beside_it_and_drains_them_first(site: Site) -> None:
    session_id = await enqueue(site.database, "paint", {"waits": True})
    server = site.start(
        *("server", "--no-auth", "--listen", "127.0.0.1:0", "--data-dir", str(site.folder / "data")),
        AIRUNNER_OUTBOX__START_RELAY="true",
        START_GEN_WORKER="true",
        AIRUNNER_GENERATION__HANDLERS=str(site.folder / "handlers.py"),
    )
    await until(lambda: site.calls == [session_id], limit_seconds=60)
    server.send(signal.SIGTERM)
    (site.folder / "go").touch()
    assert await server.ended() == 0
    await until_sessions(site.database, done=1)
