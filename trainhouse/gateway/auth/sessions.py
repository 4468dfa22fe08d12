"""Sessions of the pages: what the cookie holds once a token, or a code, was shown.

Holds: pure. A session says whose token it was made of and ends with it, or before; it has an id of its own, so that signing out ends it at
every gateway, and ends with the key of its token. It is no token: nothing but the cookie takes it.
Never: holds the token.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from trainhouse.gateway.auth import sealed
from trainhouse.gateway.auth.keyring import id_of
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.errors import InvalidTokenError

PURPOSE = "session"
# Browsers keep no larger cookie.
MAX_COOKIE_CHARS = 3800


class Session(sealed.Sealed):
    """A session. `token_until_s`: when its token ends by itself, None for never."""

    session_id: str
    sub: str
    roles: list[str]
    projects: list[str]
    token_id: str
    token_until_s: int | None = None
    # Of the token; empty in sessions from before keys had names.
    key_id: str = ""


def session_of(principal: Principal, now_s: int, lasts_s: int) -> Session:
    """A new session of a token's holder."""
    until_s = now_s + lasts_s if principal.expires_s is None else min(now_s + lasts_s, principal.expires_s)
    return Session(
        until_s=until_s,
        session_id=f"session-{secrets.token_hex(12)}",
        sub=principal.sub,
        roles=[role.name.lower() for role in principal.roles],
        projects=list(principal.projects),
        token_id=principal.token_id,
        token_until_s=principal.expires_s,
        key_id=principal.key_id,
    )


def cookie_of(key: bytes, session: Session) -> str:
    """The cookie's value. Raises InvalidTokenError where it has no room for the token's projects."""
    made = sealed.seal(key, PURPOSE, session)
    if len(made) > MAX_COOKIE_CHARS:
        raise InvalidTokenError(
            "the token names more projects than a browser's cookie has room for; use one of fewer projects for the pages"
        )
    return made


def read(key: bytes, cookie: str, now_s: int) -> Principal:
    """Reads a session. Raises InvalidTokenError, UnknownKeyError where another key made it."""
    principal = principal_of(sealed.unseal(key, PURPOSE, cookie, Session, now_s))
    return principal if principal.key_id else replace(principal, key_id=id_of(key))


def principal_of(found: Session) -> Principal:
    """The principal that a session speaks for."""
    roles = tuple(Role.named(name) for name in found.roles)
    return Principal(found.sub, roles, tuple(found.projects), found.token_id, found.until_s, found.session_id, key_id=found.key_id)
