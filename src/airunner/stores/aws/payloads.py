"""Parameters and results: small ones in the row, larger ones beside it, the largest in S3."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from airunner import telemetry
from airunner.aws.calls import Refused
from airunner.domain.errors import AirunnerError, FailedPrecondition, InvalidArgument, error_text
from airunner.domain.job import Job, JobParams
from airunner.stores.aws.forms.payloads import (
    MAX_IN_ITEM,
    ROW_FORMS,
    decode_stored_params,
    decode_stored_result,
    read_params,
    read_result,
    replaced_content,
    replaced_params,
)
from airunner.stores.aws.items import IN_S3, number, text, text_at
from airunner.stores.aws.unreadable import UnreadableRow
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from airunner.aws.calls import Aws
    from airunner.domain.job import JobResult
    from airunner.stores.aws.forms.payloads import StoredPayload
    from airunner.stores.aws.items import Item, Row, Value
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.unreadable import UnreadableRows
    from airunner.stores.records import NewJob

_log = get_logger("airunner.aws")

# What a sentence about them begins with.
_PARAMETERS: Final = "parameters of this job are"
_RESULT: Final = "result of this job is"
# What S3 says of an object that is missing; the second to those who may not list the bucket.
_GONE: Final = ("NoSuchKey", "AccessDenied")
# How long a job that is shown without what cannot be read waits for each of its payloads.
_SHOWN_AFTER_SECONDS: Final = 3

T = TypeVar("T")


class PayloadGone(FailedPrecondition):
    """The parameters or the result of this job are gone."""


class PayloadRefused(Refused):
    """AWS does not let this server read a payload."""


class Payloads:
    """Where the payloads of jobs are. A place is empty for the row itself, an item's key, or `s3:` and a key.

    A payload is written with the row that names it or before, under a name that only this job uses, and of
    results only one of just these bytes: what no row names is seen by nobody.
    """

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        unreadable: UnreadableRows,
        *,
        drop_secrets: bool = False,
        row_format: int = 1,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._unreadable = unreadable
        self.form = ROW_FORMS[row_format]
        # Whether a job that ends loses the secret values of its parameters.
        self._drop_secrets = drop_secrets

    async def keep_params(self, new: NewJob) -> tuple[Item, Item | None]:
        """Return the attributes of a row with its parameters, and the item to be put along with it, if any.

        What goes to S3 is written.
        """
        params = self.form.params(new.params, new.params_bytes)
        if params.in_row is not None:
            return params.in_row, None
        size = {"params_bytes": number(len(new.params_bytes))}
        if params.goes_beside:
            key = text(f"params#{new.job_id}")
            return {"params_place": key, **size}, {"job_id": key, "payload": params.value}
        name = f"jobs/{new.job_id}/params{params.suffix}"
        return {"params_place": await self._put_object(name, params), **size}, None

    async def keep_result(self, job_id: str, attempt: int, result: JobResult, expires: Item) -> Item:
        """Return the attributes of a row with this result, which is written if it goes elsewhere.

        `expires` says on an item when it expires.
        """
        stored = self.form.result(result)
        if stored.in_row is not None:
            return stored.in_row
        # Two ends of one attempt may race: that which loses must not write over what the row names by then.
        name = f"{attempt}-{hashlib.sha256(stored.content).hexdigest()[:16]}"
        if not stored.goes_beside:
            key = await self._put_object(f"jobs/{job_id}/result-{name}{stored.suffix}", stored)
            return {**stored.beside_it, "result_place": key}
        key = text(f"result#{job_id}#{name}")
        item = {"job_id": key, "payload": stored.value, **expires}
        await self._aws.dynamodb("PutItem", TableName=self._layout.jobs_table, Item=item)
        return {**stored.beside_it, "result_place": key}

    def changes_at_end(self, row: Row) -> Item:
        """Return what changes in a row with the end of its job: parameters in it lose their secrets.

        Parameters that cannot be read stay as they are: they keep no job from its end.
        """
        if not self._drop_secrets or "job_params" not in row.item:
            return {}
        with suppress(UnreadableRow), self._unreadable.reading("job", row.job_id):
            params = read_params(row.item)
            stripped = params.without_secrets()
            return {} if stripped is params else replaced_params(row.item, stripped)
        return {}

    async def drop_secrets(self, row: Row) -> None:
        """Remove the secrets of an ended job from parameters that are elsewhere; a failure is only told.

        What stays then goes with the job's purge.
        """
        if not self._drop_secrets or not row.params_place:
            return
        try:
            fetched = await self._fetch(row, row.params_place, _PARAMETERS)
            with self._unreadable.reading("job", row.job_id):
                params = decode_stored_params(fetched.content, is_json=fetched.is_json)
                stripped = params.without_secrets()
                rest = replaced_content(fetched.content, stripped, is_json=fetched.is_json)
            if stripped is not params:
                await self._put(row.params_place, rest)
        except AirunnerError as error:
            telemetry.aws_follow_ups_failed.add(1)
            _log.warning("aws.secrets_kept", job_id=row.job_id, error=error.text)

    async def params_of(self, row: Row) -> JobParams:
        """Return the parameters of a job, or raise UnreadableRow, PayloadGone or PayloadRefused."""
        fetched = await self._fetch(row, row.params_place, _PARAMETERS) if row.params_place else None
        with self._unreadable.reading("job", row.job_id):
            if fetched is None:
                return read_params(row.item)
            return decode_stored_params(fetched.content, is_json=fetched.is_json)

    async def handler_key_of(self, row: Row) -> str:
        """Return what a worker must have to do a job; of a row that does not say it, the parameters do."""
        if "handler" in row.item:
            return text_at(row.item, "handler")
        return (await self.params_of(row)).handler_key

    async def job_of(self, row: Row, params: JobParams | None = None) -> Job:
        """Return the whole job of a row, whose parameters need not be read where they are known."""
        row = await self.with_result(row)
        return _job(row, params or await self.params_of(row))

    async def readable_job_of(self, row: Row) -> Job:
        """Return the job of a row, abridged where a payload cannot be read now, for whatever reason."""
        whole, params = await asyncio.gather(
            self._if_readable(row, self.with_result(row)), self._if_readable(row, self.params_of(row))
        )
        job = _job(whole or self._with_summary(row), params or JobParams())
        return job if whole and params else replace(job, abridged=True)

    async def with_result(self, row: Row) -> Row:
        """Return a row with its result, wherever that is; raise as `params_of` does."""
        if not row.result_place or row.life.result:
            return row
        fetched = await self._fetch(row, row.result_place, _RESULT)
        with self._unreadable.reading("job", row.job_id):
            result = decode_stored_result(fetched.content, is_json=fetched.is_json)
        return replace(row, life=replace(row.life, result=result))

    async def with_result_if_any(self, row: Row) -> Row:
        """Return a row with its result, without one that is gone: what else is done with the job goes on."""
        try:
            return await self.with_result(row)
        except (PayloadGone, PayloadRefused, UnreadableRow):
            return row

    async def remove_objects(self, row: Row) -> None:
        """Delete what a row has in S3. May be repeated."""
        for key in row.objects:
            await self._remove(IN_S3 + key)

    async def remove_params(self, row: Row) -> None:
        """Delete the object of a row that was never written; an item would have come with the row."""
        if row.params_place.startswith(IN_S3):
            await self._remove(row.params_place)

    async def forget_result(self, kept: Item) -> None:
        """Delete a result that no row names or will ever name; one that cannot be deleted now stays."""
        with suppress(AirunnerError):
            if key := text_at(kept, "result_place"):
                await self._remove(key)

    async def link(self, key: str, seconds: int) -> str:
        """Return an address from which a payload in S3 can be read by itself for a while; else nothing."""
        if not key.startswith(IN_S3):
            return ""
        return await self._aws.presign(key.removeprefix(IN_S3), seconds)

    async def _put(self, key: str, payload: StoredPayload) -> None:
        """Write a payload over the one at a place, which has the same form."""
        if key.startswith(IN_S3):
            await self._put_object(key.removeprefix(IN_S3), payload)
            return
        item = {"job_id": text(key), "payload": payload.value}
        await self._aws.dynamodb("PutItem", TableName=self._layout.jobs_table, Item=item)

    async def _put_object(self, key: str, payload: StoredPayload) -> Value:
        """Write to S3, and return the place."""
        if not self._layout.bucket:
            raise InvalidArgument(
                f"more than {MAX_IN_ITEM} bytes of parameters or results need a bucket (store.s3.bucket)"
            )
        kind = {"ContentType": "application/json"} if payload.is_json else {}
        await self._aws.s3("PutObject", Bucket=self._layout.bucket, Key=key, Body=payload.content, **kind)
        return text(IN_S3 + key)

    async def _remove(self, key: str) -> None:
        if key.startswith(IN_S3):
            await self._aws.s3("DeleteObject", Bucket=self._layout.bucket, Key=key.removeprefix(IN_S3))
        else:
            await self._aws.dynamodb(
                "DeleteItem", TableName=self._layout.jobs_table, Key={"job_id": text(key)}
            )

    async def _if_readable(self, row: Row, reading: Awaitable[T]) -> T | None:
        """Return what is read in a short time; None, and a line in the log, if that fails."""
        try:
            async with asyncio.timeout(_SHOWN_AFTER_SECONDS):
                return await reading
        except (PayloadGone, PayloadRefused, UnreadableRow):
            return None  # noted by whoever raised it
        except (AirunnerError, TimeoutError) as error:
            _log.warning("aws.payload_left_out", job_id=row.job_id, error=error_text(error))
            return None

    def _with_summary(self, row: Row) -> Row:
        """Return a row with what it tells itself of a result that is elsewhere, if it does."""
        with suppress(UnreadableRow), self._unreadable.reading("job", row.job_id):
            return replace(row, life=replace(row.life, result=row.life.result or read_result(row.item)))
        return row

    async def _fetch(self, row: Row, key: str, subject: str) -> _Fetched:
        """Return a payload; one that is missing is noted, and raises what callers are to know of it."""
        try:
            if key.startswith(IN_S3):
                return await self._fetch_object(key.removeprefix(IN_S3), subject)
            item = await self._fetch_item(key, subject)
        except (PayloadGone, PayloadRefused) as error:
            self._unreadable.note("payload", row.job_id, error)
            raise
        with self._unreadable.reading("job", row.job_id):
            value = item["payload"]
            is_json = "S" in value
            return _Fetched(value["S"].encode() if is_json else bytes(value["B"]), is_json)

    async def _fetch_object(self, key: str, subject: str) -> _Fetched:
        try:
            answer = await self._aws.s3("GetObject", expected=_GONE, Bucket=self._layout.bucket, Key=key)
        except Refused as refused:
            error = _refusal(refused.code, subject)
        else:
            return _Fetched(bytes(answer["Body"]), key.endswith(".json"))
        raise error

    async def _fetch_item(self, key: str, subject: str) -> Item:
        answer = await self._aws.dynamodb(
            "GetItem",
            TableName=self._layout.jobs_table,
            Key={"job_id": text(key)},
            ConsistentRead=True,
        )
        if "Item" not in answer:
            raise PayloadGone(f"the {subject} gone from the table")
        item: Item = answer["Item"]
        return item


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What was stored elsewhere."""

    content: bytes
    is_json: bool


def _refusal(code: str, subject: str) -> PayloadGone | PayloadRefused:
    """Return what a refused GetObject means for its job.

    Who may not list a bucket is told for a missing object that access is denied.
    """
    match code:
        case "NoSuchKey":
            return PayloadGone(f"the {subject} gone from the bucket")
        case "AccessDenied":
            return PayloadGone(f"the {subject} gone from the bucket, or the server may not read it")
        case _:
            return PayloadRefused(code)


def _job(row: Row, params: JobParams) -> Job:
    return Job(
        job_id=row.job_id,
        queue=row.queue,
        params=params,
        execution=row.execution,
        created_at=row.created_at,
        request_id=row.request_id,
        principal=row.principal,
        life=row.life,
        retried_from=row.retried_from,
    )
