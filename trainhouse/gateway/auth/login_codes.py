"""Codes to sign in a browser: `trainhouse open` asks for one with its token, the browser shows it once.

Holds: a code counts for a minute, once at all gateways together, and only for the address that asked for it (all of loopback is one).
What ends a code is the first record on the tokens' topic that names it: of two gateways that get it at once, one lets it in.
Never: holds the token.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time

from trainhouse.events.model.audit import TokenRevoked
from trainhouse.events.wire.topics import TOKENS
from trainhouse.gateway.auth import sealed
from trainhouse.gateway.auth.sessions import Session
from trainhouse.gateway.context import Gateway, now_ms
from trainhouse.gateway.errors import InvalidTokenError
from trainhouse.gateway.problems import busy

PURPOSE = "login code"
LOOPBACK = "loopback"
SETTLE_S = 10.0
LOOK_S = 0.02


class LoginCode(sealed.Sealed):
    """A code: the session that it becomes, and where it counts."""

    code_id: str
    place: str
    session: Session


def issue(key: bytes, session: Session, address: str, now_s: int, lasts_s: int) -> str:
    """A code for this session, to be shown from the same address."""
    code = LoginCode(until_s=now_s + lasts_s, code_id=f"login-{secrets.token_hex(12)}", place=place_of(address), session=session)
    return sealed.seal(key, PURPOSE, code)


def read(key: bytes, text: str, address: str, now_s: int) -> LoginCode:
    """Reads a code. Raises InvalidTokenError."""
    found = sealed.unseal(key, PURPOSE, text, LoginCode, now_s)
    if found.place != place_of(address):
        raise InvalidTokenError("the login code was asked for from another address than this one")
    return found


def place_of(address: str) -> str:
    """Returns the common part of addresses that are the same machine's."""
    try:
        return LOOPBACK if ipaddress.ip_address(address).is_loopback else address
    except ValueError:
        return address


async def use(gateway: Gateway, code: LoginCode) -> None:
    """Takes the code. Raises InvalidTokenError where it was used, ProblemError 503 or BusUnavailableError where that cannot be known
    now."""
    event_id, known = secrets.token_hex(16), gateway.revocations.ids
    if code.code_id in known:
        raise InvalidTokenError("the login code was used already")
    if gateway.kafka is None:
        gateway.revocations.add(code.code_id, event_id)
        return
    event = TokenRevoked(token_id=code.code_id, at_ms=now_ms(), by=code.session.sub, reason="the login code was used")
    await gateway.bus.send(TOKENS, event, event_id)
    deadline = time.monotonic() + SETTLE_S
    while code.code_id not in known:
        if time.monotonic() > deadline:
            raise busy("whether the login code was used before cannot be known now; run `trainhouse open` again")
        await asyncio.sleep(LOOK_S)
    if known[code.code_id] != event_id:
        raise InvalidTokenError("the login code was used already")
