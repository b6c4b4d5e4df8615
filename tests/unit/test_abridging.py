"""What a list shows of jobs that are large."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import Job, JobParams
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.limits import MAX_LISTED_TEXT
from airunner.domain.listing import abridged
from airunner.testing.factories import make_failure, make_success

FITS = "x" * MAX_LISTED_TEXT
LARGE = FITS + "x"
JOB = Job(
    job_id="a",
    queue="builds",
    params=JobParams(command="make"),
    execution=ExecutionConfig(),
    created_at=1,
    request_id="b",
    principal="",
    life=Lifecycle(max_attempts=3, due_at=1, updated_at=1),
)


def with_params(**fields: Any) -> Job:
    return replace(JOB, params=JobParams(**fields))


def with_life(**fields: Any) -> Job:
    return replace(JOB, life=replace(JOB.life, **fields))


@pytest.mark.parametrize(
    "job",
    [
        with_params(command=FITS),
        with_params(handler="resize", payload_json=FITS),
        with_life(last_error=FITS),
        with_life(result=make_success(output_json=FITS)),
    ],
)
def test_a_job_that_fits_is_the_same(job: Job) -> None:
    assert abridged(job) is job


@pytest.mark.parametrize(
    ("params", "left"),
    [
        (JobParams(command=LARGE), JobParams(command=FITS)),
        (JobParams(command="make", args=("x", FITS)), JobParams(command="make")),
        (JobParams(command="make", environment={"X": FITS}), JobParams(command="make")),
        (JobParams(command="make", metadata={FITS: "x"}), JobParams(command="make")),
        (JobParams(handler="resize", payload_json=LARGE), JobParams(handler="resize")),
        (JobParams(command="make", owner=LARGE), JobParams(command="make", owner=FITS)),
        (JobParams(command="x", working_directory=LARGE), JobParams(command="x", working_directory=FITS)),
        (
            JobParams(command="make", environment={"KEY": LARGE}, secret_names=("KEY",), timeout_seconds=5),
            JobParams(command="make", timeout_seconds=5),
        ),
    ],
)
def test_it_is_kept_what_is_to_be_done(params: JobParams, left: JobParams) -> None:
    job = abridged(replace(JOB, params=params))
    assert job.abridged
    assert job.params == left


def test_results_and_errors_are_kept_without_what_is_large() -> None:
    completed = abridged(with_life(result=make_success(output_json=LARGE)))
    assert completed.abridged
    assert completed.result == make_success()
    failed = abridged(with_life(result=make_failure(error=LARGE), last_error=LARGE))
    assert failed.result == make_failure(error=FITS)
    assert failed.life.last_error == FITS


def test_abridging_again_changes_nothing() -> None:
    once = abridged(with_params(command=LARGE))
    assert abridged(once) is once
