"""Workers that are replaced one by one: jobs of a new handler wait for the first worker that has it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from airunner.client import AsyncClient
from airunner.domain.clock import SystemClock
from airunner.domain.job import Job, JobParams, JobState
from airunner.reading.why.explain import JobReason, explain
from airunner.reading.why.facts import gather_facts
from tests.support.processes import LIMIT_SECONDS, running_stack

OLD = """
from airunner import handler

@handler("mail")
def mail(): ...
"""
NEW = f"""{OLD}
@handler("resize")
def resize(payload: dict) -> dict:
    return {{"width": payload["width"] * 2}}
"""


async def ends(client: AsyncClient, job_ids: list[str]) -> list[Job]:
    waits = (client.wait_for_end(job_id, timeout_seconds=LIMIT_SECONDS) for job_id in job_ids)
    return await asyncio.gather(*waits)


async def test_jobs_of_a_new_handler_wait_for_the_first_new_worker(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "new.py").write_text(NEW)
    async with running_stack(tmp_path) as stack:
        await stack.start_server()
        old = await stack.start_worker("old", "--handlers", str(tmp_path / "old.py"), "--concurrency", "4")
        async with stack.client() as client:
            added = [
                (await client.enqueue(JobParams(handler="resize", payload_json=f'{{"width": {n}}}'))).job_id
                for n in range(6)
            ]
            # What the old worker can do goes past them.
            others = [JobParams(handler="mail"), JobParams(command="true")]
            done = await ends(client, [(await client.enqueue(params)).job_id for params in others])
            assert [job.state for job in done] == [JobState.COMPLETED] * 2
            for job_id in added:
                facts = await gather_facts(client, client, job_id, SystemClock())
                assert (facts.job.state, facts.job.attempt) == (JobState.SCHEDULED, 0)
                assert explain(facts).text == (
                    "It waits because no worker of queue default has the handler resize."
                )
                assert explain(facts).reason is JobReason.NO_HANDLER

            await stack.start_worker("new", "--handlers", str(tmp_path / "new.py"), "--no-commands")
            done = await ends(client, added)
            assert [(job.state, job.attempt, job.life.worker_id) for job in done] == [
                (JobState.COMPLETED, 1, "new")
            ] * 6
            assert [job.result and job.result.output_json for job in done] == [
                f'{{"width":{2 * n}}}' for n in range(6)
            ]
            able = {worker.worker_id: worker.abilities for worker in await client.list_workers()}
            assert {
                name: abilities and (abilities.handlers, abilities.commands)
                for name, abilities in able.items()
            } == {"old": (("mail",), True), "new": (("mail", "resize"), False)}

            # Commands wait in the same way when the last worker that runs them is gone.
            old.send(signal.SIGTERM)
            assert await old.ended() == 0
            waiting = (await client.enqueue(JobParams(command="true"))).job_id
            (mail,) = await ends(client, [(await client.enqueue(JobParams(handler="mail"))).job_id])
            assert (mail.state, mail.life.worker_id) == (JobState.COMPLETED, "new")
            assert (await client.get_job(waiting)).state is JobState.SCHEDULED
