"""The ids of jobs: who mints them needs randomness, who only reads jobs does not."""

from __future__ import annotations

import random


def mint_job_id(now: int) -> str:
    """Return a new UUIDv7. They sort by the time at which they were made, to the millisecond."""
    # 48 bits of time, the version, 12 random bits, the variant, 62 random bits; by hand since it is hot.
    bits = random.getrandbits(74)
    time = f"{now & 0xFFFF_FFFF_FFFF:012x}"
    tail = f"{bits & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000:016x}"
    return f"{time[:8]}-{time[8:]}-7{bits >> 62:03x}-{tail[:4]}-{tail[4:]}"
