"""Certificates of a stack that was asked for TLS: an authority of its own, and the gateway's certificate.

Holds: made once, for their owner alone; the certificate is made anew before it ends, the authority stays, so that clients go on. The
authority's key signs names of this machine's loopback only: whoever trusts it trusts it for nothing else.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from trainhouse.deploy.local.free_ports import LOOPBACK
from trainhouse.deploy.local.layout import StackFolder, endpoint
from trainhouse.private_files import write_private

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
RENEW_DAYS = 30
NAMES = ("localhost",)
ADDRESSES = (LOOPBACK, "::1")


def paths(folder: StackFolder) -> tuple[Path, Path, Path]:
    """The authority's certificate, the gateway's with its chain, and the gateway's key."""
    place = folder.part("gateway") / "tls"
    return place / "ca.pem", place / "cert.pem", place / "key.pem"


def wanted(folder: StackFolder) -> bool:
    """Whether the last `up` enabled TLS."""
    choices = folder.read_choices()
    return choices is not None and choices.tls


def gateway_url(folder: StackFolder, port: int) -> str:
    """URL of this stack's gateway."""
    return endpoint(port, "https" if wanted(folder) else "http")


def context(folder: StackFolder) -> ssl.SSLContext | None:
    """TLS context that trusts this stack's authority; None without TLS."""
    return ssl.create_default_context(cafile=paths(folder)[0]) if wanted(folder) else None


def ensure(folder: StackFolder) -> None:
    """Makes what is missing or about to end. Blocks."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    ca_path, cert_path, key_path = paths(folder)
    now = datetime.datetime.now(datetime.UTC)
    if ca_path.exists() and cert_path.exists() and key_path.exists():
        left = x509.load_pem_x509_certificate(cert_path.read_bytes()).not_valid_after_utc - now
        if left > datetime.timedelta(days=RENEW_DAYS):
            return
    place = ca_path.parent
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key_path = place / "ca.key"

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def builder(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
        begins = now - datetime.timedelta(days=1)  # clocks may differ
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
        return made.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(now + datetime.timedelta(days=days))

    def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
        form = serialization.PrivateFormat.PKCS8
        return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())

    sites = [*map(x509.DNSName, NAMES), *(x509.IPAddress(ipaddress.ip_address(a)) for a in ADDRESSES)]
    if ca_path.exists() and ca_key_path.exists():
        ca = x509.load_pem_x509_certificate(ca_path.read_bytes())
        ca_key = serialization.load_pem_private_key(ca_key_path.read_bytes(), None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey), "we made it so"
    else:
        ca_key = ec.generate_private_key(ec.SECP256R1())
        own = name("Trainhouse stack on this machine")
        ranges = [x509.IPAddress(ipaddress.ip_network("127.0.0.0/8")), x509.IPAddress(ipaddress.ip_network("::1/128"))]
        use = x509.KeyUsage(False, False, False, False, False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)
        ca = (
            builder(own, own, ca_key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(use, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
            .add_extension(x509.NameConstraints([x509.DNSName("localhost"), *ranges], None), critical=True)
            .sign(ca_key, hashes.SHA256())
        )
        write_private(ca_key_path, pem(ca_key))
        write_private(ca_path, ca.public_bytes(serialization.Encoding.PEM))
    key = ec.generate_private_key(ec.SECP256R1())
    cert = (
        builder(name("Trainhouse gateway"), ca.subject, key.public_key(), CERTIFICATE_DAYS)
        .add_extension(x509.SubjectAlternativeName(sites), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    write_private(key_path, pem(key))
    write_private(cert_path, cert.public_bytes(serialization.Encoding.PEM))
