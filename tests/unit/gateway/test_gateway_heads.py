"""Rules of a request's head: hosts, origins, lengths, sizes."""

from __future__ import annotations

import pytest

from trainhouse.gateway.limits.request_heads import Limits, host_name, names_of, refused
from trainhouse.gateway.settings import GatewaySettings

NAMES = names_of(["Train.example.org."], "0.0.0.0", "https://gate.example.org:8443")
LIMITS = Limits(4096, 16)


def status(headers: list[tuple[bytes, bytes]], method: str = "GET", target: int = 10) -> int | None:
    found = refused(method, target, headers, NAMES, LIMITS)
    return found.status if found else None


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:80", "localhost:1", "a.localhost", "[::1]:9", "10.1.2.3", "TRAIN.example.org:1", "gate.example.org."],
)
def test_own_names_and_addresses_are_taken(host: str) -> None:
    assert status([(b"host", host.encode())]) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "train.example.org.evil.example", "localhost.evil.example", "x@localhost", "", "a b", "[::1", "h:x"]
)
def test_other_names_are_not(host: str) -> None:
    assert status([(b"host", host.encode())]) == 421


def test_a_request_has_one_host() -> None:
    assert status([]) == 400
    assert status([(b"host", b"localhost"), (b"host", b"evil.example")]) == 400


@pytest.mark.parametrize(
    ("origin", "found"),
    [("http://localhost:3", None), ("https://gate.example.org", None), ("null", 403), ("https://evil.example", 403), ("localhost", 403)],
)
def test_a_page_of_another_site_writes_nothing(origin: str, found: int | None) -> None:
    headers = [(b"host", b"localhost:3"), (b"origin", origin.encode())]
    assert status(headers, "POST") == found
    assert status(headers, "GET") is None


def test_two_lengths_of_one_body_are_refused() -> None:
    host = (b"host", b"localhost")
    assert status([host, (b"content-length", b"4"), (b"transfer-encoding", b"chunked")], "POST") == 400
    assert status([host, (b"content-length", b"4")], "POST") is None


def test_a_head_has_bounds() -> None:
    host = (b"host", b"localhost")
    assert status([host, (b"x", b"y" * 5000)]) == 431
    assert status([host, *[(b"x", b"y")] * 16]) == 431
    assert status([host], target=5000) == 431


def test_a_name_that_cannot_be_read_is_none() -> None:
    assert host_name(b"\xff") is None and host_name(b"localhost:99999") is None


def test_settings_take_names_with_commas_and_both_halves_of_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_HOSTS", "a.example, b.example")
    assert GatewaySettings().hosts == ("a.example", "b.example")
    with pytest.raises(ValueError, match="belong together"):
        GatewaySettings.model_validate({"tls_cert": "x.pem"})
