"""Batches made smaller: their outputs as one compressed block, where that helps."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.errors import InvalidArgument
from airunner.domain.limits import MAX_EVENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

# Below this size the block costs more than it saves.
_WORTH_BYTES = 256
_LEVEL = 3
_UNTOLD = -1


class _Zstd(threading.local):
    """A compressor serves one thread at a time."""

    def __init__(self) -> None:
        import zstandard  # late: who lists jobs has no batches to unpack

        self.broken = zstandard.ZstdError
        self.told_size = zstandard.frame_content_size
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


@cache
def _zstd() -> _Zstd:
    return _Zstd()


def pack(batch: pb.OutputBatchEvent, plain: bytes) -> None:
    """Give a batch the outputs of another, of which this is the encoding: compressed, if that is smaller."""
    packed = _zstd().compressor.compress(plain) if len(plain) >= _WORTH_BYTES else plain
    if len(packed) < len(plain):
        batch.encoding, batch.packed, batch.unpacked_bytes = pb.BATCH_ENCODING_ZSTD, packed, len(plain)
    else:
        batch.MergeFromString(plain)


def outputs(batch: pb.OutputBatchEvent) -> Sequence[pb.OutputItem]:
    """Return the outputs of a batch, packed or not; one that lies about itself is refused."""
    if not batch.encoding:
        return batch.outputs
    if batch.encoding != pb.BATCH_ENCODING_ZSTD:
        raise InvalidArgument("the batch has an unknown encoding")
    if batch.outputs or not 0 < batch.unpacked_bytes <= MAX_EVENT_BYTES:
        raise InvalidArgument(f"a packed batch has only packed outputs, of at most {MAX_EVENT_BYTES} bytes")
    try:
        return pb.OutputBatchEvent.FromString(_unpacked(batch.packed, batch.unpacked_bytes)).outputs
    except (_zstd().broken, DecodeError):
        raise InvalidArgument("the packed batch cannot be unpacked") from None


def unpack_payload(payload: bytes) -> bytes:
    """Return a stored payload for a reader that cannot unpack; one that cannot be read is left as it is."""
    try:
        message = pb.JobEvent.FromString(payload)
        if not message.output_batch.encoding:
            return payload
        plain = outputs(message.output_batch)
    except (DecodeError, InvalidArgument):
        return payload
    for field in ("encoding", "packed", "unpacked_bytes"):
        message.output_batch.ClearField(field)
    message.output_batch.outputs.extend(plain)
    return message.SerializeToString()


def _unpacked(packed: bytes, size: int) -> bytes:
    """Return what was packed, if it has so many bytes; no more memory than that is taken."""
    zstd = _zstd()
    # Where the frame tells its size, so much is unpacked, whatever the limit.
    told = zstd.told_size(packed)
    if told in {_UNTOLD, size}:
        plain = zstd.decompressor.decompress(packed, max_output_size=size, allow_extra_data=False)
        told = len(plain)
        if told == size:
            return plain
    raise InvalidArgument(f"the packed batch has {told} bytes, not {size}")
