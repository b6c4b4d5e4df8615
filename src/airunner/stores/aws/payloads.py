"""Parameters and results: small ones in the row, larger ones beside it, the largest in S3."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from airunner import telemetry
from airunner.aws.calls import Refused
from airunner.codec.jobs import decode_params, decode_result, encode_params, encode_result
from airunner.domain.errors import AirunnerError, FailedPrecondition, InvalidArgument, error_text
from airunner.domain.job import Job, JobParams
from airunner.stores.aws.items import blob, blob_at, number, text, text_at
from airunner.stores.aws.unreadable import UnreadableRow
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from airunner.aws.calls import Aws
    from airunner.domain.job import JobResult
    from airunner.stores.aws.items import Item, Row, Value
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.unreadable import UnreadableRows

_log = get_logger("airunner.aws")

# A row is written with every publish, and paid for by the kilobyte.
_IN_ROW_BYTES: Final = 4 * 1024
# An item may have 400 KB, its names and keys included.
_IN_ITEM_BYTES: Final = 350 * 1024
_S3: Final = "s3:"
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
        self, aws: Aws, layout: Layout, unreadable: UnreadableRows, *, drop_secrets: bool = False
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._unreadable = unreadable
        # Whether a job that ends loses the secret values of its parameters.
        self._drop_secrets = drop_secrets

    async def keep_params(self, job_id: str, encoded: bytes) -> tuple[Item, Item | None]:
        """Return the attributes of a row with these parameters, and the item to be put along with it, if any.

        What goes to S3 is written.
        """
        if len(encoded) <= _IN_ROW_BYTES:
            return {"job_params": blob(encoded)}, None
        size = {"params_bytes": number(len(encoded))}
        if goes_beside(encoded):
            key = text(f"params#{job_id}")
            return {"params_place": key, **size}, {"job_id": key, "payload": blob(encoded)}
        return {"params_place": await self._put_object(f"jobs/{job_id}/params", encoded), **size}, None

    async def keep_result(self, job_id: str, attempt: int, result: JobResult) -> Item:
        """Return the attributes of a row with this result, which is written if it goes elsewhere."""
        encoded = encode_result(result)
        if len(encoded) <= _IN_ROW_BYTES:
            return {"result": blob(encoded)}
        # Two ends of one attempt may race: that which loses must not write over what the row names by then.
        name = f"{attempt}-{hashlib.sha256(encoded).hexdigest()[:16]}"
        if not goes_beside(encoded):
            return {"result_place": await self._put_object(f"jobs/{job_id}/result-{name}", encoded)}
        key = text(f"result#{job_id}#{name}")
        item = {"job_id": key, "payload": blob(encoded)}
        await self._aws.dynamodb("PutItem", TableName=self._layout.jobs_table, Item=item)
        return {"result_place": key}

    def changes_at_end(self, row: Row) -> Item:
        """Return what changes in a row with the end of its job: parameters in it lose their secrets."""
        inline = blob_at(row.item, "job_params")
        if not self._drop_secrets or not inline:
            return {}
        params = decode_params(inline)
        stripped = params.without_secrets()
        return {} if stripped is params else {"job_params": blob(encode_params(stripped))}

    async def drop_secrets(self, row: Row) -> None:
        """Remove the secrets of an ended job from parameters that are elsewhere; a failure is only told.

        What stays then goes with the job's purge.
        """
        if not self._drop_secrets or not row.params_place:
            return
        try:
            params = await self.params_of(row)
            stripped = params.without_secrets()
            if stripped is not params:
                await self._put(row.params_place, encode_params(stripped))
        except AirunnerError as error:
            telemetry.aws_follow_ups_failed.add(1)
            _log.warning("aws.secrets_kept", job_id=row.job_id, error=error.text)

    async def params_of(self, row: Row) -> JobParams:
        """Return the parameters of a job, or raise UnreadableRow, PayloadGone or PayloadRefused."""
        encoded = (
            await self._fetch(row, row.params_place, "parameters of this job are")
            if row.params_place
            else None
        )
        with self._unreadable.reading("job", row.job_id):
            return decode_params(blob_at(row.item, "job_params") if encoded is None else encoded)

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
        job = _job(whole or row, params or JobParams())
        return job if whole and params else replace(job, abridged=True)

    async def with_result(self, row: Row) -> Row:
        """Return a row with its result, wherever that is; raise as `params_of` does."""
        if not row.result_place or row.life.result:
            return row
        encoded = await self._fetch(row, row.result_place, "result of this job is")
        with self._unreadable.reading("job", row.job_id):
            result = decode_result(encoded)
        return replace(row, life=replace(row.life, result=result))

    async def with_result_if_any(self, row: Row) -> Row:
        """Return a row with its result, without one that is gone: what else is done with the job goes on."""
        try:
            return await self.with_result(row)
        except (PayloadGone, PayloadRefused, UnreadableRow):
            return row

    async def remove(self, row: Row) -> None:
        """Delete what a row has elsewhere. May be repeated."""
        for key in filter(None, (row.params_place, row.result_place)):
            await self._remove(key)

    async def remove_params(self, row: Row) -> None:
        """Delete the object of a row that was never written; an item would have come with the row."""
        if row.params_place.startswith(_S3):
            await self._remove(row.params_place)

    async def forget_result(self, kept: Item) -> None:
        """Delete a result that no row names or will ever name; one that cannot be deleted now stays."""
        with suppress(AirunnerError):
            if key := text_at(kept, "result_place"):
                await self._remove(key)

    async def link(self, key: str, seconds: int) -> str:
        """Return an address from which a payload in S3 can be read by itself for a while; else nothing."""
        if not key.startswith(_S3):
            return ""
        return await self._aws.presign(key.removeprefix(_S3), seconds)

    async def _put(self, key: str, encoded: bytes) -> None:
        """Write a payload over the one at a place."""
        if key.startswith(_S3):
            await self._put_object(key.removeprefix(_S3), encoded)
            return
        item = {"job_id": text(key), "payload": blob(encoded)}
        await self._aws.dynamodb("PutItem", TableName=self._layout.jobs_table, Item=item)

    async def _put_object(self, key: str, encoded: bytes) -> Value:
        """Write to S3, and return the place."""
        if not self._layout.bucket:
            raise InvalidArgument(
                f"more than {_IN_ITEM_BYTES} bytes of parameters or results need a bucket (store.s3.bucket)"
            )
        await self._aws.s3("PutObject", Bucket=self._layout.bucket, Key=key, Body=encoded)
        return text(_S3 + key)

    async def _remove(self, key: str) -> None:
        if key.startswith(_S3):
            await self._aws.s3("DeleteObject", Bucket=self._layout.bucket, Key=key.removeprefix(_S3))
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

    async def _fetch(self, row: Row, key: str, content: str) -> bytes:
        """Return a payload; one that is missing is noted, and raises what callers are to know of it."""
        try:
            return await (self._fetch_object if key.startswith(_S3) else self._fetch_item)(key, content)
        except (PayloadGone, PayloadRefused) as error:
            self._unreadable.note("payload", row.job_id, error)
            raise

    async def _fetch_object(self, key: str, content: str) -> bytes:
        key = key.removeprefix(_S3)
        try:
            answer = await self._aws.s3("GetObject", Bucket=self._layout.bucket, Key=key)
        except Refused as refused:
            error = _refusal(refused.code, content)
        else:
            return bytes(answer["Body"])
        raise error

    async def _fetch_item(self, key: str, content: str) -> bytes:
        answer = await self._aws.dynamodb(
            "GetItem",
            TableName=self._layout.jobs_table,
            Key={"job_id": text(key)},
            ConsistentRead=True,
        )
        if "Item" not in answer:
            raise PayloadGone(f"the {content} gone from the table")
        return blob_at(answer["Item"], "payload")


def _refusal(code: str, content: str) -> PayloadGone | PayloadRefused:
    """Return what a refused GetObject means for its job.

    Who may not list a bucket is told for a missing object that access is denied.
    """
    match code:
        case "NoSuchKey":
            return PayloadGone(f"the {content} gone from the bucket")
        case "AccessDenied":
            return PayloadGone(f"the {content} gone from the bucket, or the server may not read it")
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


def goes_beside(encoded: bytes) -> bool:
    """Return whether a payload is an item of its own: too large for a row, and not for an item."""
    return _IN_ROW_BYTES < len(encoded) <= _IN_ITEM_BYTES
