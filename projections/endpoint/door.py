"""Access to the SQL port: accounts with passwords, hosts by name, no pages of other origins. As ClickHouse's HTTP interface takes them.

Holds: passwords are compared in constant time, also those of accounts that do not exist; a password is in no message.
Never: lets anyone in without a password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainhouse.projections.errors import QueryRefusedError

AUTHENTICATION_FAILED = 516
REFUSED_HOST = 195
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Account:
    """An account. `guest`: it has the connections and the limits of guests."""

    user: str
    password: str
    guest: bool = False


class Door:
    """`enter` says whose request it is. `hosts`: names under which this server is known, besides loopback's."""

    def __init__(self, accounts: Collection[Account], hosts: Collection[str] = ()) -> None:
        if not accounts or any(not account.user or not account.password for account in accounts):
            raise ValueError("every account of the SQL endpoint needs a user and a password")
        self._accounts = {account.user: (account, _digest(account.password)) for account in accounts}
        self._unknown_digest = _digest(secrets.token_hex(32))
        self._hosts = LOOPBACK_NAMES | {host.lower() for host in hosts}

    def enter(self, headers: Mapping[str, str], url: Mapping[str, str]) -> Account:
        """The account of a request. Raises QueryRefusedError with ClickHouse's 516."""
        self._address(headers)
        user, password = _given(headers, url)
        account, digest = self._accounts.get(user, (None, self._unknown_digest))
        if not hmac.compare_digest(_digest(password), digest) or account is None:
            raise QueryRefusedError(
                f"{user[:64]}: Authentication failed: password is incorrect, or there is no user with such name. "
                '`eval "$(trainhouse env)"` gives TRAINHOUSE_CLICKHOUSE_USER and TRAINHOUSE_CLICKHOUSE_PASSWORD',
                AUTHENTICATION_FAILED,
            )
        return account

    def _address(self, headers: Mapping[str, str]) -> None:
        host = headers.get("Host", "")
        if _name(host) not in self._hosts:
            raise QueryRefusedError(f"this server is not known as {host[:80]!r}; name it in TRAINHOUSE_PROJECTOR_HTTP_NAMES", REFUSED_HOST)
        origin = headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise QueryRefusedError(f"pages of {origin[:80]!r} may not ask here; ask from a server, as Grafana does", REFUSED_HOST)


def _given(headers: Mapping[str, str], url: Mapping[str, str]) -> tuple[str, str]:
    basic = headers.get("Authorization", "")
    if basic[:6].lower() == "basic ":
        try:
            user, _, password = base64.b64decode(basic[6:], validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return "", ""
        return user, password
    if "X-ClickHouse-User" in headers or "X-ClickHouse-Key" in headers:
        return headers.get("X-ClickHouse-User", ""), headers.get("X-ClickHouse-Key", "")
    return url.get("user", "default"), url.get("password", "")


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest()
