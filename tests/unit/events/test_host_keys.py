"""Host keys of jobs: one form counts, on the client and where the gateway passes it on."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from trainhouse.events.tunnel.host_keys import FirstLine, HostKeyError, checked_host_key
from trainhouse.events.tunnel.tunnel_frames import MAX_LINE_BYTES

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
BLOB = KEY.split()[1]
RSA = base64.b64encode(b"\0\0\0\x07ssh-rsa" + b"\0" * 40).decode()
WRONG: list[Any] = [
    None,
    7,
    [KEY],
    "",
    "ssh-ed25519",
    f"{KEY}\n",
    f" {KEY}",
    f"{KEY} comment",
    f"{KEY}\n* ssh-ed25519 {BLOB}",
    f"{KEY}\r",
    f"{KEY},{KEY}",
    f"@cert-authority {KEY}",
    f"*.trainhouse {KEY}",
    f"ssh-rsa {RSA}",
    f"ssh-ed25519 {RSA}",
    f"ssh-rsa {BLOB}",
    f"ssh-ed25519 {BLOB[:-4]}",
    f"ssh-ed25519 {BLOB[:-1]}=",
    f"ssh-ed25519  {BLOB}",
    f"ssh-ed25519\t{BLOB}",
    f"ssh-ed25519 {'A' * 68}",
    f"SSH-ED25519 {BLOB}",
]


def test_a_key_as_openssh_writes_it_counts() -> None:
    assert checked_host_key(KEY) == KEY


@pytest.mark.parametrize("value", WRONG)
def test_nothing_else_does(value: Any) -> None:
    with pytest.raises(HostKeyError, match="has to be `ssh-ed25519 BASE64`"):
        checked_host_key(value)


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_a_first_line_with_such_a_key_is_not_passed_on_however_it_is_cut(pieces: int) -> None:
    for value, is_right in ((KEY, True), (f"{KEY}\nevil.trainhouse {KEY}", False)):
        line = json.dumps({"ok": True, "host_key": value, "user": "job"}).encode() + b"\nSSH-2.0\n{"
        first = FirstLine()
        passed = 0
        try:
            for at in range(0, len(line), pieces):
                first.check(line[at : at + pieces])
                passed = at + pieces
        except HostKeyError:
            assert not is_right and b"\n" not in line[:passed]
        else:
            assert is_right


def test_other_first_lines_pass_and_one_without_an_end_does_not() -> None:
    for line in (b'{"ok": true}\n', b"no json\n", b"[]\n", b"\n"):
        first = FirstLine()
        first.check(line)
        first.check(b'{"host_key": 1}\n')
    first = FirstLine()
    first.check(b"x" * MAX_LINE_BYTES)
    with pytest.raises(HostKeyError, match="more than"):
        first.check(b"x")
