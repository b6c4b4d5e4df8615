"""Parameters, results and execution settings as JSON values, by the names of the contract.

What is written, protobuf reads as the JSON of its message: what is unset is left out, enums go by name,
bytes are base64, instants are RFC 3339; only numbers of 64 bits are numbers. Reading raises ValueError where
a value is not of the contract's kind. Names that nobody here knows are passed by: a newer version may have
put them there.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from airunner.codec.instants import instant, set_instant
from airunner.domain.execution import BatchingConfig, ExecutionConfig
from airunner.domain.job import JobParams, JobResult, Outcome, ProcessType

if TYPE_CHECKING:
    from enum import IntEnum

JsonObject: TypeAlias = dict[str, Any]
E = TypeVar("E", bound="IntEnum")


def params_to_json(params: JobParams) -> JsonObject:
    """Return the JSON object of parameters."""
    given: JsonObject = {name: value for name in _PARAMS if (value := getattr(params, name))}
    for name in given.keys() & {"args", "secret_names"}:
        given[name] = list(given[name])
    for name in given.keys() & {"environment", "metadata"}:
        given[name] = dict(given[name])
    if params.process_type is ProcessType.PIPE:
        # The default stays unset, as on the wire.
        del given["process_type"]
    else:
        given["process_type"] = _enum_name(params.process_type, "PROCESS_TYPE")
    return given


def params_from_json(value: object) -> JobParams:
    """Return the parameters of a JSON object."""
    given = _object(value)
    return JobParams(**{name: read(given[name]) for name, read in _PARAMS.items() if name in given})


def unknown_params(given: JsonObject) -> JsonObject:
    """Return what a JSON object of parameters holds beyond the contract."""
    return {name: value for name, value in given.items() if name not in _PARAMS}


def result_to_json(result: JobResult) -> JsonObject:
    """Return the JSON object of a result."""
    given: JsonObject = {"success": result.success, "outcome": _enum_name(result.outcome, "OUTCOME")}
    for name in ("exit_code", "error_message", "output_json", "final_sequence"):
        if value := getattr(result, name):
            given[name] = value
    for name in ("started_at", "completed_at"):
        if millis := getattr(result, name):
            moment = Timestamp()
            set_instant(moment, millis)
            given[name] = moment.ToJsonString()
    if result.output_sha256:
        given["output_sha256"] = base64.b64encode(result.output_sha256).decode()
    return given


def result_from_json(value: object) -> JobResult:
    """Return the result of a JSON object."""
    given = _object(value)
    read = {name: _RESULT[name](given[name]) for name in _RESULT.keys() & given.keys()}
    if not {"success", "outcome"} <= read.keys():
        raise ValueError("a result has success and outcome")
    return JobResult(**read)


@functools.lru_cache(maxsize=256)
def execution_to_json(execution: ExecutionConfig) -> JsonObject:
    """Return the JSON object of execution settings, all of them; it is shared: do not change it."""
    batching = {name: getattr(execution.batching, name) for name in _BATCHING}
    return {"batching": batching, "heartbeat_interval_seconds": execution.heartbeat_interval_seconds}


def execution_from_json(value: object) -> ExecutionConfig:
    """Return the execution settings of a JSON object, with our defaults where it says nothing."""
    given = _object(value)
    batching = _object(given.get("batching", {}))
    read = tuple(
        (name, kind(batching[name])) for name, kind in _BATCHING.items() if batching.get(name) is not None
    )
    return _execution(read, _whole(given.get("heartbeat_interval_seconds", 0)))


@functools.lru_cache(maxsize=256)
def _execution(batching: tuple[tuple[str, Any], ...], heartbeat_seconds: int) -> ExecutionConfig:
    """Return execution settings: most jobs have the same, and equal ones are one object."""
    defaults = ExecutionConfig()
    return ExecutionConfig(
        batching=BatchingConfig(**dict(batching)),
        heartbeat_interval_seconds=heartbeat_seconds or defaults.heartbeat_interval_seconds,
    )


def _object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("not a whole number")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return tuple(map(_text, value))


def _named_texts(value: object) -> dict[str, str]:
    return {name: _text(given) for name, given in _object(value).items()}


def _moment(value: object) -> int:
    moment = Timestamp()
    moment.FromJsonString(_text(value))
    return instant(moment, "an instant")


def _blob(value: object) -> bytes:
    return base64.b64decode(_text(value), validate=True)


def _enum_name(member: IntEnum, prefix: str) -> str:
    return f"{prefix}_{member.name}"


def _enum(kind: type[E], prefix: str) -> Callable[[object], E]:
    members = {_enum_name(member, prefix): member for member in kind}

    def read(value: object) -> E:
        if (member := members.get(_text(value))) is None:
            raise ValueError(f"not a known {prefix}")
        return member

    return read


def _param_reader(default: object) -> Callable[[object], Any]:
    match default:
        case ProcessType():
            return _enum(ProcessType, "PROCESS_TYPE")
        case str():
            return _text
        case int():
            return _whole
        case tuple():
            return _texts
        case _:
            return _named_texts


# The fields of each, and how those are read.
_PARAMS: Final[Mapping[str, Callable[[object], Any]]] = {
    field.name: _param_reader(field.default) for field in fields(JobParams) if field.init
}
_RESULT: Final[Mapping[str, Callable[[object], Any]]] = {
    "success": _flag,
    "outcome": _enum(Outcome, "OUTCOME"),
    "exit_code": _whole,
    "error_message": _text,
    "started_at": _moment,
    "completed_at": _moment,
    "output_json": _text,
    "final_sequence": _whole,
    "output_sha256": _blob,
}
_BATCHING: Final[Mapping[str, Callable[[object], Any]]] = {
    field.name: _flag if isinstance(field.default, bool) else _whole for field in fields(BatchingConfig)
}
