"""HTTP settings and errors that the blocking and the asynchronous gateway client share.

Holds: certificates are checked, against the system's authorities and the one that TRAINHOUSE_GATEWAY_CA names; a redirect is not followed
(it would carry the token elsewhere).
"""

import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any

import httpx

from trainhouse.client.errors import InvalidSettingsError
from trainhouse.client.gateway.exchange import GatewayAnswer, Request
from trainhouse.client.settings import GatewaySettings
from trainhouse.url_accounts import without_account

TIMEOUT = httpx.Timeout(60.0, connect=10.0)
LIMITS = httpx.Limits(max_connections=16, max_keepalive_connections=4)


def settings(url: str, token: str) -> dict[str, Any]:
    """Arguments of an httpx client. Raises InvalidSettingsError."""
    parts = parts_of(url)
    if not token:
        raise InvalidSettingsError(
            f"the gateway at {without_account(url)} needs a token: set TRAINHOUSE_GATEWAY_TOKEN (`trainhouse token create` makes one)"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidSettingsError("TRAINHOUSE_GATEWAY_TOKEN is no token: it has characters that none has; copy it again")
    headers = {"Authorization": f"Bearer {token}", "User-Agent": "trainhouse-client"}
    return {"base_url": url.rstrip("/"), "headers": headers, "timeout": TIMEOUT, "limits": LIMITS, "verify": trusted(parts.scheme)}


def parts_of(url: str) -> urllib.parse.SplitResult:
    """The parts of a gateway's address; its port is a number. Raises InvalidSettingsError."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:
        is_address = False
    if not is_address:
        raise InvalidSettingsError(f"TRAINHOUSE_GATEWAY_URL is {without_account(url)!r}: it must be of the form https://host[:port]")
    if "@" in parts.netloc:
        # An HTTP library would send them in place of the token.
        raise InvalidSettingsError(
            f"TRAINHOUSE_GATEWAY_URL has a user name before {parts.hostname}: the gateway takes tokens alone. Write "
            f"{without_account(url)}, and set TRAINHOUSE_GATEWAY_TOKEN (`trainhouse token create` makes one)"
        )
    return parts


def trusted(scheme: str) -> ssl.SSLContext | bool:
    """Returns the trusted certificates. Raises InvalidSettingsError."""
    ca = GatewaySettings().ca
    if scheme != "https" or ca is None:
        return True
    found = httpx.create_ssl_context()
    try:
        found.load_verify_locations(cafile=ca)
    except OSError as error:
        raise InvalidSettingsError(f"TRAINHOUSE_GATEWAY_CA is {ca}: no certificate of an authority can be read there ({error})") from error
    return found


def arguments(request: Request) -> dict[str, Any]:
    """A request as httpx takes it."""
    more: dict[str, Any] = {"params": dict(request.params), "headers": dict(request.headers)}
    if request.body is not None:
        more["json"] = dict(request.body)
    if request.content is not None:
        more["content"] = request.content
    return {"method": request.method, "url": request.path, **more}


def answered(response: httpx.Response) -> GatewayAnswer:
    """An answer of httpx, read whole."""
    headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
    return GatewayAnswer(response.status_code, response.content, headers)
