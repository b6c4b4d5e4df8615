"""Rows in both forms: whatever a job holds comes back, protobuf reads our JSON, and damage is told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from airunner.codec import job_json
from airunner.codec.execution import execution_to_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import encode_params, params_to_pb, result_to_pb
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import JobParams, JobResult, Outcome, ProcessType
from airunner.stores.aws.forms import payloads as forms
from airunner.stores.aws.forms.values import from_value, to_value
from airunner.testing.factories import make_success
from tests.support import wire_values as wire

each_form = pytest.mark.parametrize("form", forms.ROW_FORMS.values(), ids=["packed", "readable"])
READABLE = forms.ROW_FORMS[2]

# What DynamoDB holds: 38 digits, names that are not empty.
json_values = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(-(10**38) + 1, 10**38 - 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_json_values_come_back_from_attribute_values(value: Any) -> None:
    assert from_value(to_value(value)) == value


def test_values_may_be_nested_deeply() -> None:
    value: Any = "core"
    for _ in range(30):
        value = [{"": None} and {"in": value}]
    assert from_value(to_value(value)) == value


@pytest.mark.parametrize("value", [10**38, -(10**38), {"": 1}, 1.5, b"bytes", {"a": [{"": ""}]}])
def test_what_dynamodb_would_refuse_or_round_is_no_attribute_value(value: Any) -> None:
    with pytest.raises(ValueError, match="no such value"):
        to_value(value)


def test_values_that_only_others_write_can_be_read() -> None:
    assert from_value({"NS": ["1", "2.5"]})[0] == 1
    assert from_value({"B": b"\x00\xff"}) == "AP8="
    assert from_value({"BS": [b"a"]}) == ["YQ=="]
    assert from_value({"SS": ["a"]}) == ["a"]
    assert str(from_value({"N": "1.25"})) == "1.25"
    assert from_value({"N": "1E+2"}) == 100
    with pytest.raises(ValueError, match="called X"):
        from_value({"X": 1})


def stored_params(form: forms.RowForm, params: JobParams) -> JobParams:
    stored = form.params(params)
    beside = forms.decode_stored_params(stored.content, is_json=stored.is_json)
    assert stored.in_row is None or forms.read_params(stored.in_row) == beside
    return beside


def stored_result(form: forms.RowForm, result: JobResult) -> JobResult:
    stored = form.result(result)
    beside = forms.decode_stored_result(stored.content, is_json=stored.is_json)
    assert stored.in_row is None or forms.read_result(stored.in_row) == beside
    return beside


@each_form
@given(params=wire.job_params)
def test_parameters_come_back_from_row_item_and_object(form: forms.RowForm, params: JobParams) -> None:
    read = stored_params(form, params)
    assert read == params
    # Workers, fingerprints and copies of a job go by the canonical bytes.
    assert encode_params(read) == encode_params(params)


@each_form
@given(result=wire.results)
def test_results_come_back_from_row_item_and_object(form: forms.RowForm, result: JobResult) -> None:
    assert stored_result(form, result) == result


@each_form
@given(execution=wire.executions)
def test_execution_settings_come_back(form: forms.RowForm, execution: ExecutionConfig) -> None:
    assert forms.read_execution(form.execution(execution)) == execution


@given(wire.job_params, wire.results, wire.executions)
def test_protobuf_reads_our_json(params: JobParams, result: JobResult, execution: ExecutionConfig) -> None:
    for written, message in (
        (job_json.params_to_json(params), params_to_pb(params)),
        (job_json.result_to_json(result), result_to_pb(result)),
        (job_json.execution_to_json(execution), execution_to_pb(execution)),
    ):
        assert json_format.ParseDict(json.loads(json.dumps(written)), type(message)()) == message


@given(wire.job_params, wire.results)
def test_we_read_the_json_of_protobuf_but_for_large_numbers(params: JobParams, result: JobResult) -> None:
    def plain(message: Any) -> Any:
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    assert job_json.params_from_json(plain(params_to_pb(params))) == params
    told = {"success": False, **plain(result_to_pb(result)), "final_sequence": result.final_sequence}
    assert job_json.result_from_json(told) == result


def test_a_row_shows_what_people_look_for() -> None:
    params = JobParams(command="make", args=("all",), environment={"CI": "1"}, timeout_seconds=60)
    assert READABLE.params(params).in_row == {
        "job_params": {
            "M": {
                "command": {"S": "make"},
                "args": {"L": [{"S": "all"}]},
                "environment": {"M": {"CI": {"S": "1"}}},
                "timeout_seconds": {"N": "60"},
            }
        }
    }
    result = JobResult(success=True, outcome=Outcome.SUCCESS, completed_at=1_700_000_000_123)
    assert READABLE.result(replace(result, output_json='{"n": 1e3}')).in_row == {
        "result": {
            "M": {
                "success": {"BOOL": True},
                "outcome": {"S": "OUTCOME_SUCCESS"},
                "completed_at": {"S": "2023-11-14T22:13:20.123Z"},
            }
        },
        "output_json": {"S": '{"n": 1e3}'},
    }
    assert READABLE.execution(ExecutionConfig())["execution_config"]["M"].keys() == {
        "batching",
        "heartbeat_interval_seconds",
    }
    pty = READABLE.params(JobParams(command="top", process_type=ProcessType.PTY))
    assert json.loads(pty.content) == {"command": "top", "process_type": "PROCESS_TYPE_PTY"}


def test_the_size_of_the_json_says_where_it_goes() -> None:
    def sized(size: int) -> forms.StoredPayload:
        frame = len(READABLE.params(JobParams(command="x")).content) - 1
        return READABLE.params(JobParams(command="ü" + "x" * (size - frame - 2)))

    for size, in_row, beside in (
        (512, True, False),
        (513, False, True),
        (350 * 1024, False, True),
        (350 * 1024 + 1, False, False),
    ):
        stored = sized(size)
        assert len(stored.content) == size
        assert (stored.in_row is not None, stored.goes_beside) == (in_row, beside)


@pytest.mark.parametrize("name", ["environment", "metadata"])
def test_an_empty_name_goes_beside_the_row(name: str) -> None:
    params = JobParams(command="make", **{name: {"": "value"}})  # type: ignore[arg-type]  # one of two maps
    stored = READABLE.params(params)
    assert (stored.in_row, stored.goes_beside) == (None, True)
    assert stored_params(READABLE, params) == params


def test_a_row_tells_the_end_of_a_result_that_is_elsewhere() -> None:
    result = replace(make_success(output_json='"' + "x" * 5_000 + '"'), error_message="e" * 9_000)
    stored = READABLE.result(result)
    assert stored.in_row is None
    told = forms.read_result(stored.beside_it)
    assert told == replace(result, output_json="", error_message="e" * 1_000)


DAMAGED: list[dict[str, Any]] = [
    {"job_params": {"S": "make"}},
    {"job_params": {"M": {"command": {"N": "1"}}}},
    {"job_params": {"M": {"args": {"S": "all"}}}},
    {"job_params": {"M": {"args": {"L": [{"N": "1"}]}}}},
    {"job_params": {"M": {"environment": {"M": {"CI": {"N": "1"}}}}}},
    {"job_params": {"M": {"timeout_seconds": {"S": "60"}}}},
    {"job_params": {"M": {"timeout_seconds": {"N": "1.5"}}}},
    {"job_params": {"M": {"process_type": {"S": "PROCESS_TYPE_OF_THE_FUTURE"}}}},
    {"result": {"S": "done"}},
    {"result": {"M": {}}},
    {"result": {"M": {"success": {"BOOL": True}, "outcome": {"S": "OUTCOME_OF_THE_FUTURE"}}}},
    {"result": {"M": {"success": {"N": "1"}, "outcome": {"S": "OUTCOME_SUCCESS"}}}},
    {
        "result": {
            "M": {"success": {"BOOL": False}, "outcome": {"S": "OUTCOME_LOST"}, "started_at": {"S": "now"}}
        }
    },
    {"execution_config": {"S": "usual"}},
    {"execution_config": {"M": {"batching": {"L": []}}}},
    {"execution_config": {"M": {"heartbeat_interval_seconds": {"S": "30"}}}},
]


@pytest.mark.parametrize("item", DAMAGED, ids=str)
def test_what_is_damaged_is_not_read(item: dict[str, Any]) -> None:
    reads = {
        "job_params": forms.read_params,
        "result": forms.read_result,
        "execution_config": forms.read_execution,
    }
    (name,) = item
    with pytest.raises((ValueError, KeyError)):
        reads[name](item)


def test_what_a_newer_version_adds_is_passed_by_and_stays() -> None:
    params = JobParams(command="make", environment={"TOKEN": "hunter2!"}, secret_names=("TOKEN",))
    item = READABLE.params(params).in_row
    assert item is not None
    item["job_params"]["M"] |= {"priority": {"N": "7.5"}, "labels": {"SS": ["a"]}}
    assert forms.read_params(item) == params
    changed = forms.replaced_params(item, params.without_secrets())
    assert changed["job_params"]["M"]["labels"] == {"SS": ["a"]}
    assert forms.read_params(changed) == params.without_secrets()
    assert "environment" not in changed["job_params"]["M"]
    beside = json.dumps({**job_json.params_to_json(params), "priority": 7.5}).encode()
    assert forms.decode_stored_params(beside, is_json=True) == params
    rest = forms.replaced_content(beside, params.without_secrets(), is_json=True)
    assert json.loads(rest.content) == {"command": "make", "secret_names": ["TOKEN"], "priority": 7.5}
    config = READABLE.execution(ExecutionConfig())
    config["execution_config"]["M"]["nice"] = {"N": "10"}
    config["execution_config"]["M"]["batching"]["M"]["codec"] = {"S": "br"}
    assert forms.read_execution(config) == ExecutionConfig()


def test_the_messages_have_no_field_that_the_json_forgets() -> None:
    for message, known in (
        (pb.JobParams, job_json._PARAMS),
        (pb.JobResult, {"job_id": None, **job_json._RESULT}),
        (pb.BatchingConfig, job_json._BATCHING),
        (pb.ExecutionConfig, dict.fromkeys(("batching", "heartbeat_interval_seconds"))),
    ):
        assert {field.name for field in message.DESCRIPTOR.fields} == known.keys()
