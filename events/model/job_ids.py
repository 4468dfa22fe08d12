"""Ids for jobs: readable, and in the order of their making for one name.

Holds: pure; the time and the random bits come in as arguments.  Never: reads a clock or a random source.
"""

import re

from trainhouse.events.model.ids import JobId

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # pragma: allowlist secret
TIME_CHARS = 9
RANDOM_CHARS = 4
RANDOM_BITS = 5 * RANDOM_CHARS
MAX_NAME_CHARS = 40


def job_id_of(name: str, now_ms: int, random: int) -> JobId:
    """`gpt` at a time -> `gpt-1k7x3m9qp2f8d`: later ids of one name sort after earlier ones. `random` has RANDOM_BITS bits."""
    return JobId.parse(f"{slug(name)}-{_base32(now_ms, TIME_CHARS)}{_base32(random, RANDOM_CHARS)}")


def slug(name: str) -> str:
    """A name as a part of an id: lower case letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_NAME_CHARS].rstrip("-") or "job"


def _base32(number: int, chars: int) -> str:
    digits = []
    for _ in range(chars):
        number, digit = divmod(number, 32)
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
