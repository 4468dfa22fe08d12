"""A token bucket in whole numbers: how many of something may happen within a minute.

Holds: pure; in any span of `ms` no more than `burst` + `ms` x `per_minute` / `shares` / 60,000 are taken; what is refused takes nothing;
time that goes back a little counts as none. A clock that was set back further says nothing of how long ago the last one was taken: the
bucket is a full one then, so that no caller is starved for as long as the clock was ahead, and gets no more than `burst` by it.
"""

from dataclasses import dataclass
from typing import Final

MINUTE_MS: Final = 60_000
STEP_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a minute, of which each of `shares` buckets refills its part. `burst`: so many at once."""

    per_minute: int
    burst: int
    shares: int = 1

    @property
    def unit(self) -> int:
        """Cost of one request: a millisecond refills `per_minute`."""
        return MINUTE_MS * self.shares


@dataclass(frozen=True, slots=True)
class Bucket:
    """Token level, in parts of `Rate.unit`, as of a moment."""

    level: int
    at_ms: int


def take(rate: Rate, bucket: Bucket | None, now_ms: int) -> Bucket | None:
    """The bucket after one more; None where there is none left. No bucket is a full one."""
    bucket = _of_now(bucket, now_ms)
    now_ms = max(now_ms, bucket.at_ms) if bucket is not None else now_ms
    level = _level(rate, bucket, now_ms)
    return Bucket(level - rate.unit, now_ms) if level >= rate.unit else None


def left(rate: Rate, bucket: Bucket | None, now_ms: int) -> int:
    """Returns the number of requests that may be taken now."""
    return _level(rate, bucket, now_ms) // rate.unit


def wait_s(rate: Rate, bucket: Bucket | None, now_ms: int) -> int:
    """Whole seconds until one more may be taken, 0 when it may now."""
    missing = rate.unit - _level(rate, bucket, now_ms)
    return -(-missing // (rate.per_minute * 1000)) if missing > 0 else 0


def _level(rate: Rate, bucket: Bucket | None, now_ms: int) -> int:
    full = rate.burst * rate.unit
    bucket = _of_now(bucket, now_ms)
    if bucket is None:
        return full
    return min(full, bucket.level + max(0, now_ms - bucket.at_ms) * rate.per_minute)


def _of_now(bucket: Bucket | None, now_ms: int) -> Bucket | None:
    """The bucket, unless it is of a time that a clock was ahead by."""
    return None if bucket is not None and bucket.at_ms - now_ms > STEP_MS else bucket
