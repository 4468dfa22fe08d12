"""Access control of the S3 server's other ports: keys and a certificate that its own roles alone hold.

Holds: gRPC of all roles, and HTTP of all but S3, want a client certificate whose key is in a file for its owner alone; the volume server
wants a token besides, signed with a key of its own, for every read, write and delete. All of it is made anew at each `up`.
Never: a door of its own for the S3 port, whose keys are in `StoreKeys`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import tomli_w

from trainhouse.deploy.local.errors import NotReadyError
from trainhouse.private_files import write_private

SIGNED = (("jwt", "signing"), ("jwt", "signing", "read"), ("jwt", "filer_signing"), ("jwt", "filer_signing", "read"))
ROLES = ("master", "volume", "filer", "s3")
# The roles that answer HTTP on ports of their own.
HTTP_ROLES = ("master", "filer", "volume")
CERTIFICATE_DAYS = 3650
CLOCK_SLACK_DAYS = 2
KEY_BYTES = 40
# Also from a browser's page on any other origin.
OPTIONS: Mapping[str, str] = {
    "disableHttp": "true",
    "filer.disableHttp": "true",
    "filer.exposeDirectoryData": "false",
    "filer.allowedOrigins": "http://127.0.0.1",
    "s3.allowedOrigins": "",
}


def write_doors(folder: Path) -> None:
    """Writes `security.toml`, which the server reads from `-config_dir`, with a fresh certificate and fresh keys."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate, key = folder / "roles.crt", folder / "roles.key"
    shown, hidden = _self_signed()
    write_private(certificate, shown)
    write_private(key, hidden)
    write_private(folder / "security.toml", tomli_w.dumps(_settings(str(certificate), str(key))).encode())


def _settings(certificate: str, key: str) -> dict[str, object]:
    pair = {"cert": certificate, "key": key}
    found: dict[str, object] = {
        "access": {"ui": False},
        "filer": {"expose_directory_metadata": {"enabled": False}},
        "grpc": {"ca": certificate, "client": pair, **dict.fromkeys(ROLES, pair)},
        "https": {role: {**pair, "ca": certificate} for role in HTTP_ROLES} | {"client": {"enabled": True, **pair, "ca": certificate}},
    }
    for path in SIGNED:
        table = found
        for name in path:
            table = table.setdefault(name, {})  # type: ignore[assignment]
        table["key"] = secrets.token_urlsafe(KEY_BYTES)
    return found


def _self_signed() -> tuple[bytes, bytes]:
    """A certificate that signs itself, and its key, as PEM: whoever holds the key is a role of this server."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainhouse-store")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=CLOCK_SLACK_DAYS))
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    hidden = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), hidden


def local_sockets(grpc_ports: Mapping[str, int]) -> Iterator[Path]:
    """The sockets that the server makes in /tmp, whatever it is told, for its roles to speak gRPC to each other."""
    for role, port in grpc_ports.items():
        yield Path(f"/tmp/seaweedfs-{role}-grpc-{port}.sock")  # nosec B108  # where the server makes them


def refuse_taken(sockets: Iterator[Path]) -> None:
    """NotReadyError if another user has put something where a socket of the server is to be: its roles would speak to that."""
    for path in sockets:
        try:
            owner = path.lstat().st_uid
        except FileNotFoundError:
            continue
        if owner != os.geteuid():
            raise NotReadyError(
                f"{path}, where the store's roles speak to each other, belongs to uid {owner}: remove it, or choose other ports"
            )
