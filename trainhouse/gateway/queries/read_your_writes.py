"""Read-your-writes: the token that a write's answer has, and the wait until what it wrote can be read.

Holds: only the gateway makes such a token, so that waiting for one tells nothing of other projects; a wait is bounded, and ends in a 503
that says so.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from typing import Annotated

import jwt
from fastapi import Depends, Query, Request
from pydantic import BaseModel, ValidationError

from trainhouse.gateway.auth.authentication import Anybody
from trainhouse.gateway.auth.keyring import Keys
from trainhouse.gateway.context import Gateway, gateway_of
from trainhouse.gateway.errors import ProblemError, UnknownKeyError
from trainhouse.gateway.problems import busy

ALGORITHM = "HS256"
MAX_CHARS = 1024
FIRST_POLL_S = 0.03
LONGEST_POLL_S = 0.25

# A refusal makes rows of several tables, one after the other, and who may see it stands in the submission itself: all have to be there.
_SUBMITTED = """
SELECT (SELECT count() FROM jobs_rows WHERE job_key = {job_id:String} AND version > 0 AND spec_sha256 IN ({spec_sha256:String}, '')) > 0
    OR (SELECT count() FROM rejections_rows WHERE submission_id = {event_id:String}) > 0
        AND (SELECT count() FROM jobs_rows WHERE job_key IN ({job_id:String}, {event_id:String})) > 0
        AND (SELECT count() FROM events_rows WHERE job_id = {job_id:String} AND event_id = {event_id:String}) > 0 AS there
"""
_ASKED = """
SELECT count() > 0 AS there FROM events_rows WHERE job_id = {job_id:String} AND event_id = {event_id:String}
"""


class Written(BaseModel):
    """Written event; `job_id` of one about a job, `spec_sha256` of a submission. `partition` and `offset` are those of its topic."""

    job_id: str
    event_id: str
    spec_sha256: str = ""
    partition: int
    offset: int


def token_of(written: Written, key: bytes) -> str:
    """As text for `?after=`."""
    return jwt.encode(written.model_dump(), _own_key(key), algorithm=ALGORITHM)


def read(token: str, key: bytes) -> Written:
    """Reads a token. Raises ProblemError 400, UnknownKeyError where another key made it."""
    try:
        return Written.model_validate(jwt.decode(token, _own_key(key), algorithms=[ALGORITHM]))
    except jwt.InvalidSignatureError as error:
        raise UnknownKeyError("another key made `after`") from error
    except (jwt.PyJWTError, ValidationError, ValueError) as error:
        raise _bad() from error


def read_by(keys: Keys, token: str) -> Written:
    """Reads a token that one of the keys made. Raises ProblemError 400."""
    try:
        return keys.read(lambda key: read(token, key))
    except UnknownKeyError as error:
        raise _bad() from error


def _bad() -> ProblemError:
    return ProblemError(400, "Bad after", "`after` is not from a write's answer of this gateway; leave it out to read what there is")


def _own_key(key: bytes) -> bytes:
    return hmac.digest(key, b"trainhouse after", "sha256")


async def settle(gateway: Gateway, written: Written) -> None:
    """Waits until it can be read. Raises ProblemError 503."""
    deadline = time.monotonic() + gateway.settings.after_wait_s
    sql = _SUBMITTED if written.spec_sha256 else _ASKED
    values = {"job_id": written.job_id, "event_id": written.event_id, "spec_sha256": written.spec_sha256}
    pause = FIRST_POLL_S
    while True:
        found = await gateway.reader.one(sql, values)
        if found is not None and found["there"]:
            return
        if time.monotonic() + pause > deadline:
            about = f" about job {written.job_id}" if written.job_id else ""
            raise busy(
                f"what you wrote{about} is on the bus, but cannot be read yet after "
                f"{gateway.settings.after_wait_s:g} s: intake, scheduler or projector is behind or away. Ask again; nothing is lost"
            )
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_POLL_S)


async def settled(
    request: Request,
    _: Anybody,
    after: Annotated[str | None, Query(max_length=MAX_CHARS, description="`after` of a write's answer: wait until it can be read.")] = None,
) -> None:
    """A dependency of reads: waits for `?after=`."""
    if after is not None:
        gateway = gateway_of(request)
        await settle(gateway, read_by(gateway.keys.now(), after))


After = Depends(settled)
