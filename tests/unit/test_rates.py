"""Token buckets, on a clock that a test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.services.rates import MAX_TRACKED, Buckets, TokenBucket, network_of
from airunner.testing.clock import ManualClock


def taken(bucket: TokenBucket, now: int, tries: int) -> int:
    return sum(bucket.take(now) == 0 for _ in range(tries))


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(10, 30, 0)
    assert taken(bucket, 0, 100) == 30
    assert taken(bucket, 1000, 100) == 10
    assert taken(bucket, 1050, 100) == 0
    assert taken(bucket, 1100, 100) == 1
    assert taken(bucket, 3_600_000, 100) == 30


def test_who_comes_back_when_told_finds_a_token() -> None:
    bucket = TokenBucket(0.25, 1, 0)
    assert bucket.take(0) == 0
    assert bucket.take(1000) == 3
    assert bucket.take(4000) == 0


@given(
    rate=st.floats(0.1, 10_000),
    burst=st.floats(1, 100),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 50)), max_size=20),
)
def test_nobody_gets_more_than_burst_and_rate(
    rate: float, burst: float, steps: list[tuple[int, int]]
) -> None:
    bucket, now, total = TokenBucket(rate, burst, 0), 0, 0
    for elapsed, tries in steps:
        now += elapsed
        total += taken(bucket, now, tries)
        assert total <= burst + rate * now / 1000 + 1e-6


def test_a_clock_that_is_set_back_neither_gives_nor_takes() -> None:
    bucket = TokenBucket(1, 10, 3_600_000)
    assert taken(bucket, 3_600_000, 10) == 10
    assert taken(bucket, 0, 5) == 0
    assert taken(bucket, 2000, 5) == 2


def test_each_has_a_bucket_and_their_number_is_bounded() -> None:
    buckets = Buckets(1, 1, ManualClock())
    assert buckets.take("ann") == 0
    assert buckets.take("bob") == 0
    assert buckets.take("ann") == 1
    assert buckets.missing("ann") == 1
    assert buckets.missing("nobody") == 0
    for number in range(MAX_TRACKED + 5):
        buckets.take(str(number))
    assert buckets.tracked == MAX_TRACKED


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("a socket", "a socket"),
        ("", ""),
    ],
)
def test_what_counts_as_one_caller(address: str, network: str) -> None:
    assert network_of(address) == network
