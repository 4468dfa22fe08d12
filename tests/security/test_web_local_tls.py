"""The certificates of `trainhouse up --tls`: clients of the stack trust them by its settings, nobody else does, and for loopback alone."""

from __future__ import annotations

import stat
from pathlib import Path

import httpx
import pytest

from tests.security.test_web_raw import serving
from trainhouse.client.gateway import transport
from trainhouse.deploy.local import client_config, stack
from trainhouse.deploy.local.layout import StackFolder, StackPorts
from trainhouse.deploy.local.servers import certificates
from trainhouse.deploy.local.servers.seaweedfs import StoreKeys
from trainhouse.deploy.local.supervision import readiness


@pytest.fixture
def folder(tmp_path: Path) -> StackFolder:
    made = StackFolder(tmp_path)
    made.make()
    return made


def chosen(folder: StackFolder, on: bool | None) -> dict[str, str]:
    """What `up` writes for it; the section of the gateway."""
    choices = stack.choose(folder, None, StackPorts.from_base(30_000), on)
    if choices.tls:
        certificates.ensure(folder)
    client_config.write(folder, choices, StoreKeys.new())
    folder.write_choices(choices)
    from trainhouse.deploy.local.layout import read_toml

    return dict(read_toml(folder.client_config)["gateway"])


def test_clients_take_the_authority_from_the_stacks_settings(folder: StackFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    section = chosen(folder, True)
    assert section["url"].startswith("https://") and certificates.gateway_url(folder, 1).startswith("https://")
    ca, cert, key = certificates.paths(folder)
    with serving(tls_cert=cert, tls_key=key) as port:
        for host in ("127.0.0.1", "localhost"):
            url = f"https://{host}:{port}"
            monkeypatch.delenv("TRAINHOUSE_GATEWAY_CA", raising=False)
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                httpx.Client(**transport.settings(url, "t")).get("/healthz")
            monkeypatch.setenv("TRAINHOUSE_GATEWAY_CA", client_config.exports(folder)["TRAINHOUSE_GATEWAY_CA"])
            assert httpx.Client(**transport.settings(url, "t")).get("/healthz").status_code == 200
        assert readiness.answers(f"https://127.0.0.1:{port}/healthz", certificates.context(folder))()
        assert not readiness.answers(f"https://127.0.0.1:{port}/healthz")()
    for path in (*certificates.paths(folder), ca.parent / "ca.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_up_goes_on_as_before_and_makes_nothing_anew(folder: StackFolder) -> None:
    chosen(folder, True)
    before = [path.read_bytes() for path in certificates.paths(folder)]
    assert chosen(folder, None)["url"].startswith("https://")
    assert [path.read_bytes() for path in certificates.paths(folder)] == before
    plain = chosen(folder, False)
    assert plain["url"].startswith("http://") and not {"ca", "tls_cert", "tls_key"} & set(plain)
    assert "TRAINHOUSE_GATEWAY_CA" not in client_config.exports(folder)


def test_a_certificate_that_ends_soon_is_made_anew_by_the_same_authority(folder: StackFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "CERTIFICATE_DAYS", 3)
    chosen(folder, True)
    ca, cert, _ = (path.read_bytes() for path in certificates.paths(folder))
    monkeypatch.undo()
    chosen(folder, None)
    assert certificates.paths(folder)[0].read_bytes() == ca and certificates.paths(folder)[1].read_bytes() != cert


def test_the_authority_counts_for_loopback_alone(folder: StackFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who steals its key makes no certificate of another site that a client of this stack believes."""
    import socket
    import ssl
    import threading

    chosen(folder, True)
    monkeypatch.setattr(certificates, "NAMES", ("bank.example",))
    certificates.paths(folder)[1].unlink()
    certificates.ensure(folder)
    _, cert, key = certificates.paths(folder)
    serving_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving_side.load_cert_chain(cert, key)
    trusting = certificates.context(folder)
    assert trusting is not None
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            serving_side.wrap_socket(theirs, server_side=True)
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        trusting.wrap_socket(ours, server_hostname="bank.example")
    ours.close()
    thread.join(30)
