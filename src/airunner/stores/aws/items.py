"""Items to and from the domain, and the one shape of every conditional write."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from airunner.domain.event import EncodedEvent, EventType
from airunner.domain.job import stored_state
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.limits import MAX_PARAMS_BYTES
from airunner.stores.aws.forms.payloads import params_size, read_execution, read_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airunner.domain.execution import ExecutionConfig

Value: TypeAlias = dict[str, Any]
"""A DynamoDB attribute value, such as {"N": "1"}."""
Item: TypeAlias = dict[str, Value]

IN_S3: Final = "s3:"
"""What the place of a payload begins with that is an object of S3."""

# Later attempts continue the sort key of the events where no sequence of an earlier one can be.
_ATTEMPT_STEP: Final = 10**12
LAST_SEQUENCE: Final = _ATTEMPT_STEP - 1
# Tells whether an item has the same payload, without sending it again.
_DIGEST_BYTES: Final = 16
# A row is read and written with every publish: no text may make it large.
_MAX_ERROR_CHARACTERS: Final = 1_000
WATCHER_PREFIX: Final = "watcher_"
"""Of the attributes that say where a job is watched, one for each server."""
_NUMBERS: Final = (
    *("max_attempts", "due_at", "updated_at", "attempt", "handed_back", "visible_until"),
    *("visibility_seconds", "completed_by", "finished_at", "silent_attempts", "cancelled_at"),
)
_TEXTS: Final = ("worker_id", "instance_id", "last_error", "cancelled_by")


def number(value: int) -> Value:
    """Return a number as an attribute value."""
    return {"N": str(value)}


def text(value: str) -> Value:
    """Return a text as an attribute value."""
    return {"S": value}


def blob(value: bytes) -> Value:
    """Return bytes as an attribute value."""
    return {"B": value}


def number_at(item: Item, name: str) -> int:
    """Return a number of an item, 0 if it has none."""
    value = item.get(name)
    return int(value["N"]) if value else 0


def number_if_any(item: Item, name: str) -> int:
    """Return a number of an item, 0 if it has none or something else in its place."""
    try:
        return number_at(item, name)
    except (KeyError, TypeError, ValueError):
        return 0


def text_at(item: Item, name: str) -> str:
    """Return a text of an item, empty if it has none."""
    value = item.get(name)
    return str(value["S"]) if value else ""


def blob_at(item: Item, name: str) -> bytes:
    """Return bytes of an item, empty if it has none."""
    value = item.get(name)
    return bytes(value["B"]) if value else b""


@dataclass(frozen=True, slots=True)
class Row:
    """A job as its row has it, all but its payloads. The nonce is another after every write of the life."""

    job_id: str
    queue: str
    created_at: int
    request_id: str
    principal: str
    retried_from: str
    execution: ExecutionConfig
    life: Lifecycle
    nonce: str
    params_place: str
    """Where the parameters are: empty for in the row itself."""
    params_bytes: int
    """How many bytes they have; at most, where nobody noted it."""
    result_place: str
    shard: int
    item: Item

    @property
    def items_beside(self) -> list[str]:
        """The keys of the items that hold its payloads; those in the row and in S3 have none."""
        keys = (self.params_place, self.result_place)
        return [key for key in keys if key and not key.startswith(IN_S3)]

    @property
    def objects(self) -> list[str]:
        """The names of the objects in S3 that hold its payloads."""
        keys = (self.params_place, self.result_place)
        return [key.removeprefix(IN_S3) for key in keys if key.startswith(IN_S3)]

    @property
    def last_sequences(self) -> Mapping[int, int]:
        """The last sequence of every attempt that has events."""
        sequences = self.item.get("sequences", {"M": {}})["M"]
        return {int(attempt): int(last["N"]) for attempt, last in sequences.items()}


def row_from_item(item: Item) -> Row:
    """Return the row of a job's item; a result that is elsewhere is still to be read."""
    return Row(
        job_id=text_at(item, "job_id"),
        queue=text_at(item, "queue"),
        created_at=number_at(item, "created_at"),
        request_id=text_at(item, "request_id"),
        principal=text_at(item, "principal"),
        retried_from=text_at(item, "retried_from"),
        execution=read_execution(item),
        life=_life(item),
        nonce=text_at(item, "nonce"),
        params_place=text_at(item, "params_place"),
        params_bytes=_params_bytes(item),
        result_place=text_at(item, "result_place"),
        shard=number_at(item, "shard"),
        item=item,
    )


def _params_bytes(item: Item) -> int:
    if not text_at(item, "params_place"):
        return params_size(item)
    return number_at(item, "params_bytes") or MAX_PARAMS_BYTES


def life_changes(before: Lifecycle | None, after: Lifecycle) -> Item:
    """Return the attributes that differ, or all of them; the result is put in its place by others."""
    changes: Item = {}
    for name in _NUMBERS:
        value = getattr(after, name)
        if before is None or value != getattr(before, name):
            changes[name] = number(value)
    for name in _TEXTS:
        words = getattr(after, name)
        if before is None or words != getattr(before, name):
            changes[name] = text(words[:_MAX_ERROR_CHARACTERS])
    if before is None or after.state is not before.state:
        changes["state"] = number(int(after.state))
    if before is None or after.cancel_requested is not before.cancel_requested:
        changes["cancel_requested"] = {"BOOL": after.cancel_requested}
    if after.holder_at != (before.holder_at if before else ""):
        changes["holder_at"] = text(after.holder_at)
    if before is None:
        changes["sequences"] = {"M": {}}
    elif after.last_sequence > before.last_sequence:
        changes[f"sequences.{after.attempt}"] = number(after.last_sequence)
    return changes


def update_expression(
    changes: Item, removed: Iterable[str] = (), conditions: Mapping[str, Value | None] | None = None
) -> dict[str, Any]:
    """Return the arguments of a conditional UpdateItem: what to set and to remove, and what must be there.

    A condition with None says that there is no such attribute. A dot leads into a map.
    """
    names: dict[str, str] = {}
    values: Item = {}

    def name(path: str) -> str:
        parts = path.split(".")
        names.update({f"#{part}": part for part in parts})
        return ".".join(f"#{part}" for part in parts)

    def value(mark: str, path: str, given: Value) -> str:
        key = f":{mark}_{path.replace('.', '_')}"
        values[key] = given
        return key

    update = "SET " + ", ".join(f"{name(path)} = {value('s', path, new)}" for path, new in changes.items())
    gone = ", ".join(map(name, removed))
    arguments: dict[str, Any] = {"UpdateExpression": f"{update} REMOVE {gone}" if gone else update}
    if conditions:
        arguments["ConditionExpression"] = " AND ".join(
            f"attribute_not_exists({name(path)})"
            if old is None
            else f"{name(path)} = {value('c', path, old)}"
            for path, old in conditions.items()
        )
    return {
        **arguments,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }


def sort_key(attempt: int, sequence: int) -> int:
    """Return the place of an event in the order of all events of its job."""
    return (attempt - 1) * _ATTEMPT_STEP + sequence


def event_item(job_id: str, event: EncodedEvent, expires_at: int, nonce: str) -> Item:
    """Return the item of an event; `expires_at` is an instant, the nonce another one for each write."""
    return {
        "job_id": text(job_id),
        "sequence": number(sort_key(event.attempt, event.first_sequence)),
        "last_sequence": number(event.last_sequence),
        "timestamp": number(event.first_timestamp),
        "last_timestamp": number(event.last_timestamp),
        "event_type": number(int(event.event_type)),
        "event_payload": blob(event.payload),
        "digest": blob(hashlib.sha256(event.payload).digest()[:_DIGEST_BYTES]),
        "nonce": text(nonce),
        "ttl": number(expires_at // 1000),
    }


def event_from_item(item: Item) -> EncodedEvent:
    """Return the event of an item."""
    attempt, first = divmod(number_at(item, "sequence"), _ATTEMPT_STEP)
    first_timestamp = number_at(item, "timestamp")
    return EncodedEvent(
        first_sequence=first,
        # What others wrote before there were batches has neither.
        last_sequence=number_at(item, "last_sequence") or first,
        first_timestamp=first_timestamp,
        last_timestamp=number_at(item, "last_timestamp") or first_timestamp,
        event_type=EventType(number_at(item, "event_type")),
        payload=blob_at(item, "event_payload"),
        attempt=attempt + 1,
    )


def unreadable_event(item: Item) -> EncodedEvent:
    """Return the event of an item that cannot be read: readers are told of a gap in its place."""
    attempt, first = divmod(number_at(item, "sequence"), _ATTEMPT_STEP)
    last = max(number_if_any(item, "last_sequence"), first)
    at = number_if_any(item, "timestamp")
    return EncodedEvent(first, last, at, at, EventType.GAP, b"", attempt + 1)


def _life(item: Item) -> Lifecycle:
    attempt = number_at(item, "attempt")
    last = item.get("sequences", {"M": {}})["M"].get(str(attempt))
    is_elsewhere = bool(text_at(item, "result_place"))
    return Lifecycle(
        max_attempts=number_at(item, "max_attempts"),
        due_at=number_at(item, "due_at"),
        updated_at=number_at(item, "updated_at"),
        state=stored_state(number_at(item, "state")),
        attempt=attempt,
        handed_back=number_at(item, "handed_back"),
        visible_until=number_at(item, "visible_until"),
        visibility_seconds=number_at(item, "visibility_seconds"),
        cancel_requested=bool(item.get("cancel_requested", {}).get("BOOL")),
        worker_id=text_at(item, "worker_id"),
        instance_id=text_at(item, "instance_id"),
        last_sequence=int(last["N"]) if last else 0,
        last_error=text_at(item, "last_error"),
        result=None if is_elsewhere else read_result(item),
        completed_by=number_at(item, "completed_by"),
        finished_at=number_at(item, "finished_at"),
        silent_attempts=number_at(item, "silent_attempts"),
        cancelled_by=text_at(item, "cancelled_by"),
        cancelled_at=number_at(item, "cancelled_at"),
        watched_until=number_at(item, "watched_until"),
        watchers_at=_watchers_at(item),
        holder_at=text_at(item, "holder_at"),
    )


def _watchers_at(item: Item) -> tuple[tuple[str, int], ...]:
    """Return who watches a job where, and until when; what cannot be read of it is not worth a job."""
    found: list[tuple[str, int]] = []
    for name, value in item.items() if "watched_until" in item else ():
        if name.startswith(WATCHER_PREFIX):
            with suppress(KeyError, TypeError, ValueError):
                found.append((str(value["M"]["address"]["S"]), int(value["M"]["until"]["N"])))
    return tuple(found)
