"""Execution settings, parameters and results as rows and what is beside them hold them, in either form.

Form 1 is the packed message of the contract. Form 2 is what `aws dynamodb get-item` shows: maps by the names
of the contract, and beside the row JSON. Each attribute says by its kind which form it has, so that a row may
have both; what is written is a matter of `store.aws.row_format`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from airunner.codec.execution import decode_execution, encode_execution
from airunner.codec.job_json import (
    execution_from_json,
    execution_to_json,
    params_from_json,
    params_to_json,
    result_from_json,
    result_to_json,
    unknown_params,
)
from airunner.codec.jobs import decode_params, decode_result, encode_params, encode_result
from airunner.domain.job import JobParams
from airunner.stores.aws.forms.values import from_value, to_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.codec.job_json import JsonObject
    from airunner.domain.execution import ExecutionConfig
    from airunner.domain.job import JobResult
    from airunner.stores.aws.items import Item, Value

# A row is written with every publish, and paid for by the kilobyte; a result comes with the last write.
MAX_PACKED_IN_ROW: Final = 4 * 1024
MAX_JSON_PARAMS_IN_ROW: Final = 512
MAX_JSON_RESULT_IN_ROW: Final = 4 * 1024
# An item may have 400 KB, its names and keys included.
MAX_IN_ITEM: Final = 350 * 1024
# Of an error in a row whose result is elsewhere.
_MAX_ERROR_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPayload:
    """What is stored of parameters or a result: all of it in the row, or `content` elsewhere."""

    content: bytes
    is_json: bool
    in_row: Item | None = None
    """The attributes of a row that hold all of it; None if it has to go elsewhere."""
    beside_it: Item = field(default_factory=dict)
    """The attributes of a row whose payload is elsewhere: what can be told without it."""

    @property
    def goes_beside(self) -> bool:
        """Whether it is an item of its own: not for a row, and not too large for an item."""
        return self.in_row is None and len(self.content) <= MAX_IN_ITEM

    @property
    def value(self) -> Value:
        """The content as an attribute of an item of its own."""
        return {"S": self.content.decode()} if self.is_json else {"B": self.content}

    @property
    def suffix(self) -> str:
        """How the name of its object ends."""
        return ".json" if self.is_json else ""


class RowForm(Protocol):
    """How new rows and new ends are written."""

    def execution(self, execution: ExecutionConfig) -> Item:
        """Return the attributes of execution settings."""

    def params(self, params: JobParams, packed: bytes = b"") -> StoredPayload:
        """Return how parameters are stored; `packed` is their canonical encoding, where that is known."""

    def result(self, result: JobResult) -> StoredPayload:
        """Return how a result is stored."""


class PackedForm:
    """Form 1."""

    def execution(self, execution: ExecutionConfig) -> Item:
        """Return the attributes of execution settings."""
        return {"execution": {"B": encode_execution(execution)}}

    def params(self, params: JobParams, packed: bytes = b"") -> StoredPayload:
        """Return how parameters are stored."""
        return self._stored("job_params", packed or encode_params(params))

    def result(self, result: JobResult) -> StoredPayload:
        """Return how a result is stored."""
        return self._stored("result", encode_result(result))

    def _stored(self, name: str, content: bytes) -> StoredPayload:
        in_row: Item | None = {name: {"B": content}} if len(content) <= MAX_PACKED_IN_ROW else None
        return StoredPayload(content=content, is_json=False, in_row=in_row)


class ReadableForm:
    """Form 2. Parameters of up to 512 bytes of JSON are a map in the row; of a result, all but its output."""

    def execution(self, execution: ExecutionConfig) -> Item:
        """Return the attributes of execution settings."""
        return {"execution_config": to_value(execution_to_json(execution))}

    def params(self, params: JobParams, packed: bytes = b"") -> StoredPayload:  # noqa: ARG002  of form 1
        """Return how parameters are stored."""
        given = params_to_json(params)
        content = _dump(given)
        fits = len(content) <= MAX_JSON_PARAMS_IN_ROW and _has_names(given)
        in_row = {"job_params": to_value(given)} if fits else None
        return StoredPayload(content=content, is_json=True, in_row=in_row)

    def result(self, result: JobResult) -> StoredPayload:
        """Return how a result is stored; a large error is cut in the row and whole elsewhere."""
        content = _dump(result_to_json(result))
        bare = replace(result, output_json="")
        if len(content) <= MAX_JSON_RESULT_IN_ROW:
            in_row: Item = {"result": to_value(result_to_json(bare))}
            if result.output_json:
                in_row["output_json"] = {"S": result.output_json}
            return StoredPayload(content=content, is_json=True, in_row=in_row)
        bare = replace(bare, error_message=bare.error_message[:_MAX_ERROR_CHARACTERS])
        beside_it = {"result": to_value(result_to_json(bare))}
        return StoredPayload(content=content, is_json=True, beside_it=beside_it)


ROW_FORMS: Final[Mapping[int, RowForm]] = {1: PackedForm(), 2: ReadableForm()}


def read_execution(item: Item) -> ExecutionConfig:
    """Return the execution settings of a row."""
    if "execution_config" in item:
        return execution_from_json(from_value(item["execution_config"]))
    return decode_execution(bytes(item["execution"]["B"]) if "execution" in item else b"")


def read_params(item: Item) -> JobParams:
    """Return the parameters in a row."""
    value = item.get("job_params", {"B": b""})
    return params_from_json(from_value(value)) if "M" in value else decode_params(bytes(value["B"]))


def params_size(item: Item) -> int:
    """Return how many bytes the parameters in a row have in a message, at most.

    What is there may be damaged: only who reads the parameters is told.
    """
    value = item.get("job_params", {})
    return MAX_JSON_PARAMS_IN_ROW if "M" in value else len(value.get("B", b""))


def read_result(item: Item) -> JobResult | None:
    """Return the result in a row; of one that is elsewhere, what the row tells of it, if anything."""
    value = item.get("result")
    if value is None:
        return None
    if "M" not in value:
        return decode_result(bytes(value["B"])) if value["B"] else None
    given = from_value(value)
    if "output_json" in item:
        given["output_json"] = item["output_json"]["S"]
    return result_from_json(given)


def decode_stored_params(content: bytes, *, is_json: bool) -> JobParams:
    """Return the parameters of what is stored elsewhere."""
    return params_from_json(json.loads(content)) if is_json else decode_params(content)


def decode_stored_result(content: bytes, *, is_json: bool) -> JobResult:
    """Return the result of what is stored elsewhere."""
    return result_from_json(json.loads(content)) if is_json else decode_result(content)


def replaced_params(item: Item, params: JobParams) -> Item:
    """Return the attribute of a row whose parameters are to be others, in the form that they have.

    What a map holds beyond the contract stays.
    """
    value = item["job_params"]
    if "M" not in value:
        return {"job_params": {"B": encode_params(params)}}
    unknown = {name: value["M"][name] for name in unknown_params(value["M"])}
    return {"job_params": {"M": {**unknown, **to_value(params_to_json(params))["M"]}}}


def replaced_content(content: bytes, params: JobParams, *, is_json: bool) -> StoredPayload:
    """Return what is to be stored elsewhere in the place of other parameters, in the same form."""
    if not is_json:
        return StoredPayload(content=encode_params(params), is_json=False)
    unknown = unknown_params(json.loads(content))
    return StoredPayload(content=_dump({**unknown, **params_to_json(params)}), is_json=True)


def _dump(given: JsonObject) -> bytes:
    return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()


def _has_names(given: JsonObject) -> bool:
    """Return whether all that is named has a name: a map of DynamoDB has no empty ones."""
    return all("" not in given.get(name, ()) for name in ("environment", "metadata"))
