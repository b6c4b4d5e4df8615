"""Metrics of a real server and a real worker, scraped and sent, from the command line."""

from __future__ import annotations

import signal
import socket
import time
from urllib.error import URLError

import pytest

from tests.acceptance.command_line import CommandLine, Started, eventually, serving
from tests.support.processes import unused_port
from tests.support.scraping import Scrape, health, receiving, scrape

SECRET = "hunter2-hunter2"
LINES = 120
METRICS_LISTEN = ("--metrics-listen", "127.0.0.1:0")


def probes_of(worker: Started) -> str:
    return worker.wait_for("airunner worker metrics on").removesuffix("/metrics")


def do(user: CommandLine, *command: str, options: tuple[str, ...] = ()) -> tuple[str, int]:
    """Do a job that nobody watches; return its id and how many events it has."""
    job_id = user.text("submit", *options, "--", *command)
    (job,) = user.objects("get", "--wait", job_id)
    return job_id, job["result"]["final_sequence"]


def test_server_and_worker_count_the_same_jobs(person: CommandLine) -> None:
    with serving(person, "--no-auth") as (_, url):
        user = CommandLine(folder=person.folder, variables={"AIRUNNER_SERVER": url, "TEST_PASSWORD": SECRET})
        with user.start("worker", "--concurrency", "2", *METRICS_LISTEN) as worker:
            probes = probes_of(worker)
            worker.wait_for("airunner worker serves")
            done = [
                do(user, "sh", "-c", f"seq {LINES}"),
                do(user, "sh", "-c", "echo $TEST_PASSWORD", options=("--secret", "TEST_PASSWORD")),
                do(user, "sh", "-c", "exit 3"),
            ]
            # The worker has heard that a job is over a little after everybody else.
            eventually(lambda: scrape(probes).value("airunner_worker_running") == 0, "the worker is idle")
            at_server, at_worker = scrape(url), scrape(probes)
    events = sum(count for _, count in done)
    assert events >= LINES + 1 + 2 * 3
    check_server(at_server, events)
    check_worker(at_worker)
    for text in (at_server.text, at_worker.text):
        assert SECRET not in text
        assert [job_id for job_id, _ in done if job_id in text] == []


def check_server(found: Scrape, events: int) -> None:
    assert found.value("airunner_jobs_enqueued_total") == 3
    assert found.value("airunner_jobs_dequeued_total") == 3
    assert found.value("airunner_jobs_redelivered_total") == 0
    assert found.value("airunner_jobs_released_total") == 0
    assert found.value("airunner_jobs_completed_total", state="completed", outcome="success") == 2
    assert found.value("airunner_jobs_completed_total", state="failed", outcome="failure") == 1
    assert found.value("airunner_jobs_queue_wait_seconds_count") == 3
    assert found.value("airunner_jobs_processing_time_seconds_count") == 3
    assert 0 < found.value("airunner_jobs_processing_time_seconds_sum") < 60
    assert found.value("airunner_attempts_lost_total") == 0
    assert found.value("airunner_events_published_total") == events
    assert 0 < found.value("airunner_events_batches_total") < events
    assert found.value("airunner_events_published_bytes_total") > 0
    assert found.value("airunner_streams_active") == 0
    assert found.value("airunner_dequeues_waiting") == 1
    assert found.value("airunner_store_commits_total") > 0
    assert found.value("airunner_store_commit_time_seconds_total") > 0
    assert found.label_values("target_info", "service_name") == {"airunner-server"}
    assert "airunner_worker_" not in found.text


def check_worker(found: Scrape) -> None:
    assert found.value("airunner_worker_attempts_total", outcome="success") == 2
    assert found.value("airunner_worker_attempts_total", outcome="failure") == 1
    assert found.value("airunner_worker_slots") == 2
    assert found.value("airunner_worker_attempt_time_seconds_count") == 3
    # Starts and ends of processes travel with batches, and are no part of them.
    assert found.value("airunner_batching_batch_size_sum") == LINES + 1
    assert found.value("airunner_batching_batch_size_bucket", le="50.0") == found.value(
        "airunner_batching_batch_size_count"
    )
    flushes = [s.value for s in found.samples if s.name == "airunner_batching_flush_reason_total"]
    assert sum(flushes) == found.value("airunner_batching_flush_latency_seconds_count")
    # 120 lines fill two batches of 50.
    assert found.value("airunner_batching_flush_reason_total", reason="size") == 2
    assert found.value("airunner_batching_events_buffered") == 0
    assert found.value("airunner_publish_latency_seconds_count") >= 1
    for name in (
        "publish_retries",
        "publish_events_lost",
        "worker_receives_failed",
        "worker_heartbeats_failed",
    ):
        assert found.value(f"airunner_{name}_total") == 0
    assert found.label_values("target_info", "service_name") == {"airunner-worker"}
    assert "airunner_jobs_" not in found.text


def test_a_server_shows_the_queues_it_finds(person: CommandLine) -> None:
    with serving(person, "--no-auth") as (server, url):
        user = CommandLine(folder=person.folder, variables={"AIRUNNER_SERVER": url})
        for queue in ("builds", "builds", "tests"):
            user.text("submit", "--queue", queue, "--", "true")
        server.send(signal.SIGTERM)
        assert server.ended() == 0
    with serving(person, "--no-auth") as (_, url):
        eventually(lambda: "airunner_queue_depth" in scrape(url).text, "the queues are shown")
        found = scrape(url)
        assert found.value("airunner_queue_depth", queue="builds", state="scheduled") == 2
        assert found.value("airunner_queue_depth", queue="tests", state="scheduled") == 1
        assert found.value("airunner_queue_depth", queue="builds", state="running") == 0
        assert 0 < found.value("airunner_queue_oldest_age_seconds", queue="builds") < 60
        assert found.label_values("airunner_queue_paused", "queue") == {"builds", "tests"}


def test_the_health_of_a_worker(person: CommandLine) -> None:
    nobody = f"http://127.0.0.1:{unused_port()}"
    with person.start("worker", "--server", nobody, *METRICS_LISTEN) as worker:
        assert health(probes_of(worker)) == {"status": "waiting"}
    with (
        serving(person, "--no-auth") as (_, url),
        person.start("worker", "--server", url, *METRICS_LISTEN) as worker,
    ):
        probes = probes_of(worker)
        worker.wait_for("airunner worker serves")
        assert health(probes) == {"status": "ok"}
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
        with pytest.raises(URLError, match="refused"):
            health(probes)


def test_the_pages_are_there_while_the_worker_drains(person: CommandLine) -> None:
    with serving(person, "--no-auth") as (_, url):
        user = CommandLine(folder=person.folder, variables={"AIRUNNER_SERVER": url})
        go = person.folder / "go"
        user.text("submit", "--", "sh", "-c", f"until test -e {go}; do sleep 0.05; done")
        with user.start("worker", *METRICS_LISTEN) as worker:
            probes = probes_of(worker)
            eventually(lambda: scrape(probes).value("airunner_worker_running") == 1, "the job runs")
            worker.send(signal.SIGTERM)
            eventually(lambda: '"worker.stop"' in worker.err, "the worker drains")
            assert scrape(probes).value("airunner_worker_running") == 1
            go.touch()
            assert worker.ended() == 0


def test_a_port_that_is_taken_is_said_to_be(person: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = person.run("worker", "--metrics-listen", address)
    assert done.returncode == 1
    assert (
        f"cannot listen on {address}: Address already in use; choose another address with --metrics-listen"
        in (done.stderr.decode())
    )
    assert "Traceback" not in done.stderr.decode()


def test_both_send_otlp_when_the_environment_asks_for_it(person: CommandLine) -> None:
    with receiving() as receiver:
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        with serving(CommandLine(folder=person.folder, variables=otel), "--no-auth") as (server, url):
            user = CommandLine(folder=person.folder, variables={"AIRUNNER_SERVER": url})
            user.text("submit", "--", "echo", "hello")
            with user.start("worker", "--once", **otel) as worker:
                assert worker.ended() == 0
            assert receiver.services() == {"airunner-worker"}
            (attempts,) = receiver.last("airunner.worker.attempts").sum.data_points
            assert attempts.as_int == 1
            (sizes,) = receiver.last("airunner.batching.batch_size").histogram.data_points
            assert sizes.sum == 1
            server.send(signal.SIGTERM)
            assert server.ended() == 0
        assert receiver.services() == {"airunner-worker", "airunner-server"}
        (enqueued,) = receiver.last("airunner.jobs.enqueued").sum.data_points
        assert enqueued.as_int == 1
        (work,) = receiver.last("airunner.jobs.processing_time").histogram.data_points
        assert work.count == sum(work.bucket_counts) == 1
        assert set(receiver.calls) == {"/v1/metrics"}


@pytest.mark.slow
def test_a_receiver_that_never_answers_delays_the_end_by_5_seconds_at_most(person: CommandLine) -> None:
    with receiving(answers=False) as receiver:
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        with serving(CommandLine(folder=person.folder, variables=otel), "--no-auth") as (server, _):
            server.send(signal.SIGTERM)
            eventually(lambda: bool(receiver.calls), "the last metrics are sent")
            began = time.monotonic()
            assert server.ended() == 0
            # The exporter alone would wait for twice as long.
            assert time.monotonic() - began < 9


@pytest.mark.slow
def test_a_receiver_that_is_away_is_logged_and_nothing_else(person: CommandLine) -> None:
    otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{unused_port()}"}
    with serving(CommandLine(folder=person.folder, variables=otel), "--no-auth") as (server, _):
        server.send(signal.SIGTERM)
        assert server.ended() == 0
        printed = [line for line in server.err.splitlines() if not line.startswith("airunner server")]
    assert any('"metrics.export_failed"' in line for line in printed)
    assert [line for line in printed if not line.startswith("{")] == []


def test_a_disabled_sdk_measures_nothing(person: CommandLine) -> None:
    with receiving() as receiver:
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_SDK_DISABLED": "true"}
        with serving(CommandLine(folder=person.folder, variables=otel), "--no-auth") as (server, url):
            assert "airunner_" not in scrape(url).text
            server.send(signal.SIGTERM)
            assert server.ended() == 0
        assert receiver.calls == []
