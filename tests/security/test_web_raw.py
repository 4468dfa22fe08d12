"""Attacks by raw bytes on a gateway as `trainhouse run gateway` serves it: hosts, two lengths, huge heads, slow ones, also over TLS."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn

from tests.support.waiting import until
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.events.settings import KafkaSettings
from trainhouse.gateway.limits import connection_timeouts
from trainhouse.gateway.serve import server_config
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.projections.settings import ClickHouseSettings

KEY = "k" * 40
WAIT_S = 60.0


@contextmanager
def serving(**settings: Any) -> Iterator[int]:
    """A gateway whose Kafka and projections are away; its port."""
    chosen = GatewaySettings.model_validate({"key": KEY, "hosts": "train.example.org", "body_time_s": 5, **settings})
    away = KafkaSettings(bootstrap=f"127.0.0.1:{free_port()}"), ClickHouseSettings(url=f"http://127.0.0.1:{free_port()}")
    server = uvicorn.Server(server_config(chosen, *away, "critical"))
    listener = connection_timeouts.listening("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(WAIT_S)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as found:
        yield found


def said(port: int, *parts: bytes, wrap: ssl.SSLContext | None = None) -> bytes:
    """All that a server answers to some bytes until it closes the connection, or has nothing more to say for a moment."""
    plain = socket.create_connection(("127.0.0.1", port), WAIT_S)
    with wrap.wrap_socket(plain, server_hostname="127.0.0.1") if wrap else plain as connection:
        got = b""
        try:
            for part in parts:
                connection.sendall(part)
            while more := connection.recv(65536):
                got += more
                connection.settimeout(1.0)
        except (TimeoutError, ConnectionError):
            pass
        return got


def statuses(answer: bytes) -> list[int]:
    """Of each answer in a stream of them."""
    return [int(part[1:4]) for part in answer.split(b"HTTP/1.1")[1:]]


@pytest.mark.parametrize(
    "path", ["/healthz", "/", "/jobs", "/static/app/main.js", "/metrics", "/openapi.json", "/v1/whoami", "/login?code=x", "/none"]
)
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80"])
def test_a_foreign_name_gets_nothing_anywhere(port: int, path: str, host: str) -> None:
    answer = said(port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert statuses(answer) == [421], answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "train.example.org", "[::1]"])
def test_an_own_name_is_answered(port: int, host: str) -> None:
    assert statuses(said(port, f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())) == [200]


HIDDEN = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
SMUGGLING = {
    "both lengths": b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(HIDDEN)) + HIDDEN,
    "both, the other way": b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
    "an unknown coding": b"Transfer-Encoding: xchunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a list of codings": b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two lengths that differ": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "a length with a sign": b"Content-Length: +0\r\n\r\n" + HIDDEN,
    "a blank before the colon": b"Content-Length : 5\r\n\r\n" + HIDDEN,
    "a blank in a coding's name": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a bad chunk": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + HIDDEN,
}


@pytest.mark.parametrize("form", SMUGGLING)
def test_a_request_hidden_in_another_is_not_served(port: int, form: str) -> None:
    answer = said(port, b"POST /v1/session HTTP/1.1\r\nHost: localhost\r\n" + SMUGGLING[form])
    found = statuses(answer)
    assert found and 200 not in found and len(found) == 1, answer
    assert b"trainhouse_gateway_requests" not in answer


def test_heads_are_bounded_also_where_they_come_at_once(port: int) -> None:
    """A head that comes in one piece was never incomplete, so the parser's own limit does not see it."""
    for head in (b"X: " + b"y" * 100_000, b"\r\n".join(b"X%d: y" % n for n in range(2000)), b"Cookie: " + b"a=b; " * 20_000):
        answer = said(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")
        assert statuses(answer) in ([431], [400]), (head[:20], answer[:200])
    assert statuses(said(port, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")) in ([431], [400], [414])


def test_an_endless_head_is_cut(port: int) -> None:
    answer = said(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", *[b"y" * 65536] * 64)
    assert statuses(answer) in ([400], [431], []), answer


def test_slow_heads_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_timeouts, "HEAD_S", 1.0)
    with serving() as port:
        slow = [socket.create_connection(("127.0.0.1", port), WAIT_S) for _ in range(200)]
        for connection in slow:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        began_s = time.monotonic()
        assert statuses(said(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")) == [200]
        for connection in slow:
            connection.settimeout(WAIT_S)
            with connection:
                try:
                    assert connection.recv(1) == b"", "a slow one is cut"
                except ConnectionError:
                    pass
        assert time.monotonic() - began_s < WAIT_S


def test_addresses_are_not_believed_from_whoever_says_them(port: int) -> None:
    """X-Forwarded-For counts from the proxies of the settings alone: a code is bound to an address, and the audit names it."""
    config = server_config(
        GatewaySettings.model_validate({"key": KEY}),
        KafkaSettings(bootstrap="127.0.0.1:1"),
        ClickHouseSettings(url="http://127.0.0.1:1"),
        "info",
    )
    assert not config.proxy_headers and config.forwarded_allow_ips == []


SAID_SO = {"open": 200, "token": 401, "off": 404}


@pytest.mark.parametrize(("metrics", "openapi"), [("open", "token"), ("token", "off"), ("off", "open")])
def test_figures_and_document_are_as_the_operator_says(metrics: str, openapi: str) -> None:
    with serving(metrics=metrics, openapi=openapi) as port:
        for path, said_so in (("/metrics", metrics), ("/openapi.json", openapi)):
            answer = said(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            assert statuses(answer) == [SAID_SO[said_so]], path


def test_tls_by_settings(tmp_path: Path) -> None:
    ca = trustme.CA()
    made = ca.issue_cert("127.0.0.1")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    for blob in made.cert_chain_pems:
        blob.write_to_path(tmp_path / "cert.pem", append=True)
    trusting = ssl.create_default_context()
    ca.configure_trust(trusting)
    with serving(tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem") as port:
        head = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
        answer = said(port, head, wrap=trusting)
        assert statuses(answer) == [200] and b"strict-transport-security: max-age=31536000" in answer
        assert b"strict-transport" not in said(port, head.replace(b"127.0.0.1", b"localhost"), wrap=trusting)
        assert statuses(said(port, head)) == [], "plain bytes get no answer"
        old = ssl.create_default_context()
        ca.configure_trust(old)
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            said(port, head, wrap=old)
