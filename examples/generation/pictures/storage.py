"""Where pictures are kept: a folder, or a bucket of S3. A name that is written again is replaced whole."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from types_aiobotocore_s3 import S3Client


class Storage(Protocol):
    """Keeps files by name."""

    async def put(self, name: str, content: bytes) -> str:
        """Keep a picture, and return where it is. May be repeated."""

    async def get(self, name: str) -> bytes:
        """Return a picture that was put; an error if there is none."""


@dataclass(frozen=True, slots=True)
class FolderStorage:
    """Files in a folder that the application and its workers share."""

    folder: Path

    async def put(self, name: str, content: bytes) -> str:
        """Write the file."""
        return await asyncio.to_thread(self._write, name, content)

    async def get(self, name: str) -> bytes:
        """Read the file."""
        return await asyncio.to_thread((self.folder / name).read_bytes)

    def _write(self, name: str, content: bytes) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Two tries may write at once, and nobody shall read half a picture.
        unfinished = self.folder / f".{uuid.uuid4()}"
        unfinished.write_bytes(content)
        unfinished.replace(self.folder / name)
        return str(self.folder / name)


@dataclass(frozen=True, slots=True)
class S3Storage:
    """Objects of a bucket; who may write there is up to the credentials of the process."""

    bucket: str
    prefix: str = ""

    async def put(self, name: str, content: bytes) -> str:
        """Write the object."""
        key = f"{self.prefix}{name}"
        async with self._client() as s3:
            await s3.put_object(Bucket=self.bucket, Key=key, Body=content, ContentType="image/png")
        return f"s3://{self.bucket}/{key}"

    async def get(self, name: str) -> bytes:
        """Read the object."""
        async with self._client() as s3:
            found = await s3.get_object(Bucket=self.bucket, Key=f"{self.prefix}{name}")
            return await found["Body"].read()

    def _client(self) -> AbstractAsyncContextManager[S3Client]:
        from aiobotocore.config import AioConfig
        from aiobotocore.session import get_session

        return get_session().create_client("s3", config=AioConfig(connect_timeout=5, read_timeout=20))


def storage_at(place: str) -> Storage:
    """Return the storage at `s3://BUCKET/PREFIX`, or in a folder."""
    if not place.startswith("s3://"):
        return FolderStorage(Path(place))
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    return S3Storage(bucket, f"{prefix.rstrip('/')}/" if prefix else "")
