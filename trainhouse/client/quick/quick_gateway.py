"""The gateway of the settings, asked without the settings models and without an HTTP library: the same flows, a quarter of the imports.

Holds: the same address, token and certificates as `gateway.backend.ByGateway` uses, or None where that has to decide: without an address or
a token, with one that it would refuse, or where the environment names a proxy or certificates.
"""

import os
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trainhouse.client.gateway.exchange import Flow, GatewayAnswer, Request, away

if TYPE_CHECKING:
    from http.client import HTTPConnection

T = TypeVar("T")
TIMEOUT_S: Final = 60.0
CONNECT_S: Final = 10.0
AROUND: Final = {"http": ("HTTP_PROXY", "ALL_PROXY"), "https": ("HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")}
"""Variables by which an HTTP library goes another way, by scheme."""


@dataclass
class QuickGateway:
    """One user's access by the gateway, for one command, in one thread. Connects when first used. `ca`: a trusted authority's file."""

    url: str
    token: str = field(repr=False)
    ca: str = ""
    _connection: "HTTPConnection | None" = field(default=None, repr=False)

    def run(self, flow: Flow[T]) -> T:
        """Runs a flow to its end. Blocks. Raises NotReachableError, and what the flow raises."""
        try:
            request = next(flow)
            while True:
                time.sleep(request.pause_s)
                request = flow.send(self._answer(request))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _answer(self, request: Request) -> GatewayAnswer:
        import http.client

        import orjson

        parts = urllib.parse.urlsplit(self.url)
        query = urllib.parse.urlencode(dict(request.params), doseq=True)
        path = parts.path.rstrip("/") + request.path + (f"?{query}" if query else "")
        body = request.content if request.body is None else orjson.dumps(dict(request.body))
        kind = {"Content-Type": "application/json"} if request.body is not None else {}
        headers = {"Authorization": f"Bearer {self.token}", "User-Agent": "trainhouse-client", **kind, **request.headers}
        try:
            if self._connection is None:
                self._connection = self._connected(parts)
            self._connection.request(request.method, path, body, headers)
            answer = self._connection.getresponse()
            return GatewayAnswer(answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()})
        except (OSError, http.client.HTTPException) as error:
            self._connection = None
            raise away(self.url, error) from error

    def _connected(self, parts: urllib.parse.SplitResult) -> "HTTPConnection":
        import http.client

        host = parts.hostname or ""
        if parts.scheme == "https":
            import ssl

            import certifi

            trusted = ssl.create_default_context(cafile=certifi.where())
            if self.ca:
                trusted.load_verify_locations(cafile=self.ca)
            connection: HTTPConnection = http.client.HTTPSConnection(host, parts.port, timeout=CONNECT_S, context=trusted)
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=CONNECT_S)
        connection.connect()
        connection.sock.settimeout(TIMEOUT_S)
        return connection


def gateway_of(file: Mapping[str, Any], environment: Mapping[str, str], *, own: bool = False) -> QuickGateway | None:
    """The gateway of a settings file and an environment, where it is the way in. Pure but for the token's file.

    `own`: also beside Kafka's address, and with the token of a stack on this machine.
    """
    from trainhouse.client.quick.quick_sql import knows_kafka, section_of

    if knows_kafka(file, environment) and not own:
        return None
    known = section_of(file, environment, "gateway")
    url, token, ca = (known.get(name, "") for name in ("url", "token", "ca"))
    if own and not token:
        token = _own_token(known.get("token_file", ""))
    if not all(isinstance(each, str) for each in (url, token, ca)) or not is_plain(url) or (ca and not os.path.isfile(ca)):
        return None
    if goes_around(url, environment):
        return None
    # The whole client says what is wrong with others.
    return QuickGateway(url, token, ca) if token.isascii() and token.isprintable() and token and " " not in token else None


def is_plain(url: str) -> bool:
    """Whether an address is one that any HTTP library takes, without an account in it. Pure."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        plain = bool(host) and ".." not in host and parts.port != 0 and "@" not in parts.netloc and url.isascii()
        return parts.scheme in ("http", "https") and plain
    except ValueError:
        return False


def goes_around(url: str, environment: Mapping[str, str]) -> bool:
    """Whether the environment leads an HTTP library to this address by a proxy, or has it trust others. Pure."""
    parts = urllib.parse.urlsplit(url)
    excepted = (environment.get("NO_PROXY") or environment.get("no_proxy") or "").split(",")
    if parts.hostname in [name.strip() for name in excepted] and parts.scheme == "http":
        return False
    return any(environment.get(name) or environment.get(name.lower()) for name in AROUND[parts.scheme])


def _own_token(path: Any) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, TypeError, ValueError):
        return ""
