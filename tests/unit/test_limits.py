from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.domain import limits
from airunner.domain.errors import InvalidArgument
from airunner.domain.execution import BatchingConfig, ExecutionConfig
from airunner.domain.job import JobParams, JobResult, Outcome, mint_uuid
from airunner.domain.requests import StreamRequest

JOB = "0190f5a4-7c1e-7b3a-9d2f-1b6e5c4d3a21"
SUCCESS = JobResult(success=True, outcome=Outcome.SUCCESS)
COMMAND = JobParams(command="make")


def batching(**changes: int) -> None:
    replace(BatchingConfig(), **changes).validate()  # type: ignore[arg-type]  # only numbers are changed here


def streaming(**changes: int) -> None:
    replace(StreamRequest(job_id=JOB), **changes).validate()  # type: ignore[arg-type]  # only numbers


def heartbeat(seconds: int) -> None:
    ExecutionConfig(heartbeat_interval_seconds=seconds).validate()


BOUNDS: list[tuple[str, Callable[[int], None], int, int]] = [
    ("timeout_seconds", lambda n: replace(COMMAND, timeout_seconds=n).validate(), 0, 30 * 24 * 3600),
    ("flush_interval_seconds", lambda n: batching(flush_interval_seconds=n), 1, 3600),
    ("max_batch_size", lambda n: batching(max_batch_size=n), 1, 50),
    ("max_batch_bytes", lambda n: batching(max_batch_bytes=n), 1024, 350 * 1024),
    ("playback_interval_millis", lambda n: batching(playback_interval_millis=n), 1, 60_000),
    ("heartbeat_interval_seconds", heartbeat, 1, 43_200),
    ("final_sequence", lambda n: replace(SUCCESS, final_sequence=n).validate(), 0, 10**12 - 1),
    ("from_sequence", lambda n: streaming(from_sequence=n), 0, 10**12 - 1),
    ("from_timestamp", lambda n: streaming(from_timestamp=n), 0, 253_402_300_799_999),
    ("attempt", lambda n: streaming(attempt=n), 0, 2**31 - 1),
]


@pytest.mark.parametrize(("field", "check", "low", "high"), BOUNDS, ids=[bound[0] for bound in BOUNDS])
def test_a_number_is_accepted_at_its_limits_and_refused_beyond(
    field: str, check: Callable[[int], None], low: int, high: int
) -> None:
    check(low)
    check(high)
    for wrong in (low - 1, high + 1, -(2**63), 2**63 - 1):
        with pytest.raises(InvalidArgument, match=field):
            check(wrong)


SIZES: list[tuple[str, Callable[[str], None], int]] = [
    ("error_message", lambda text: replace(SUCCESS, error_message=text).validate(), 64 * 1024),
    ("output_json", lambda text: replace(SUCCESS, output_json=text).validate(), 1024 * 1024),
]


@pytest.mark.parametrize(("field", "check", "limit"), SIZES, ids=[size[0] for size in SIZES])
def test_a_text_is_measured_in_bytes(field: str, check: Callable[[str], None], limit: int) -> None:
    check("x" * limit)
    check("ü" * (limit // 2))
    for wrong in ("x" * (limit + 1), "ü" * (limit // 2) + "x"):
        with pytest.raises(InvalidArgument, match=field):
            check(wrong)


@pytest.mark.parametrize("name", ["a", "Z", "0", "-", "_", "builds-eu_1", "x" * 80])
def test_a_queue_name_is_accepted(name: str) -> None:
    assert limits.check_queue(name) == name


@pytest.mark.parametrize("name", ["", "x" * 81, "a b", "a.b", "a/b", "ä", "a\n", "a\0", "*", "٣"])
def test_what_is_no_queue_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="queue"):
        limits.check_queue(name)


@pytest.mark.parametrize("text", [JOB, JOB.upper(), JOB.replace("-", "")])
def test_a_uuid_is_brought_to_its_canonical_spelling(text: str) -> None:
    assert limits.check_uuid(text, "job_id") == JOB


@pytest.mark.parametrize(
    "text", ["", "67890", JOB[:-1], JOB + "0", "{" + JOB + "}", "urn:uuid:" + JOB, JOB[:-1] + "g", "x" * 36]
)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="job_id"):
        limits.check_uuid(text, "job_id")


def test_zero_means_the_default() -> None:
    assert limits.in_range_or_default(0, "max_jobs", 1, 1, 100) == 1
    assert limits.in_range_or_default(100, "max_jobs", 1, 1, 100) == 100
    for wrong in (-1, 101):
        with pytest.raises(InvalidArgument, match="max_jobs"):
            limits.in_range_or_default(wrong, "max_jobs", 1, 1, 100)


@pytest.mark.parametrize(
    "params",
    [
        JobParams(command="make"),
        JobParams(handler="resize"),
        JobParams(handler="resize", payload_json='{"width": 3}'),
        JobParams(repository_url="https://example.org/a.git", command="make"),
        JobParams(repository_url="https://example.org/a.git"),
        JobParams(command="make", environment={"A": "", "B": "="}),
        JobParams(command="make", environment={"B": "äöü"}, secret_names=("B",)),
    ],
)
def test_parameters_that_can_be_carried_out(params: JobParams) -> None:
    params.validate()


@pytest.mark.parametrize(
    "params",
    [
        JobParams(),
        JobParams(command="make", handler="resize"),
        JobParams(command="make", payload_json="{}"),
        JobParams(handler="resize", payload_json="{"),
        JobParams(handler="resize", payload_json="[" * 100_000),
        JobParams(command="make", environment={"": "x"}),
        JobParams(command="make", environment={"A=B": "x"}),
        JobParams(command="make", environment={"A": "x\0"}),
        JobParams(command="make", environment={"A\0": "x"}),
        JobParams(command="make", secret_names=("A",)),
        JobParams(command="ma\0ke"),
        JobParams(command="make", args=("a\0",)),
        JobParams(command="make", working_directory="\0"),
    ],
)
def test_parameters_that_no_worker_could_carry_out(params: JobParams) -> None:
    with pytest.raises(InvalidArgument):
        params.validate()


@pytest.mark.parametrize(
    "result",
    [
        JobResult(success=True, outcome=Outcome.FAILURE),
        JobResult(success=False, outcome=Outcome.SUCCESS),
        JobResult(success=True, outcome=Outcome.SUCCESS, exit_code=1),
        JobResult(success=True, outcome=Outcome.SUCCESS, output_sha256=b"short"),
    ],
)
def test_a_result_that_contradicts_itself_is_refused(result: JobResult) -> None:
    with pytest.raises(InvalidArgument):
        result.validate()


def test_a_secret_too_short_to_be_redacted_is_refused_without_telling_it() -> None:
    params = JobParams(command="make", environment={"PIN": "12345"}, secret_names=("PIN",))
    with pytest.raises(InvalidArgument, match=r"'PIN' must have at least 6 bytes") as caught:
        params.validate()
    assert "12345" not in caught.value.text


def test_secret_values_are_masked_and_others_are_not() -> None:
    params = JobParams(command="make", environment={"A": "seen", "B": "hidden"}, secret_names=("B",))
    assert params.masked().environment == {"A": "seen", "B": "********"}
    assert params.environment["B"] == "hidden"


@given(now=st.integers(0, 2**48 - 1))
def test_a_minted_id_is_a_uuid_of_version_7(now: int) -> None:
    minted = uuid.UUID(mint_uuid(now))
    assert minted.version == 7
    assert minted.variant == uuid.RFC_4122
    assert minted.int >> 80 == now


def test_minted_ids_are_distinct_and_sort_by_their_time() -> None:
    assert len({mint_uuid(1) for _ in range(10_000)}) == 10_000
    minted = [mint_uuid(now) for now in range(1_700_000_000_000, 1_700_000_001_000)]
    assert minted == sorted(minted)
