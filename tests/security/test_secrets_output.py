"""A job writes a secret as programs commonly encode it: nothing that can be turned back into it comes out of the masker."""

import base64
import binascii
import json
import re
import time
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

import pytest

from trainhouse.workers.launcher.masker import Masker

SECRET = "pX9+/q&Lr7 wünsch=TQ4z"  # pragma: allowlist secret
RAW = SECRET.encode()


def through(masker: Masker, pieces: Iterable[bytes]) -> bytes:
    return b"".join(masker.feed(piece) for piece in pieces) + masker.flush()


def cuts(text: bytes) -> Iterable[list[bytes]]:
    yield [text]
    yield [text[i : i + 1] for i in range(len(text))]
    yield from ([text[:i], text[i:]] for i in range(1, len(text)))


def encodings() -> dict[str, bytes]:
    found = {f"base64 after {n} bytes": base64.b64encode(b"x" * n + RAW + b"tail") for n in range(4)}
    found |= {f"base64url after {n} bytes": base64.urlsafe_b64encode(b"x" * n + RAW) for n in range(3)}
    return found | {
        "hex": RAW.hex().encode(),
        "HEX": RAW.hex().upper().encode(),
        "reversed": RAW[::-1],
        "reversed characters": SECRET[::-1].encode(),
        "url": quote(SECRET).encode(),
        "url, small digits": re.sub(rb"%..", lambda escape: escape[0].lower(), quote(SECRET, safe="").encode()),
        "form": quote_plus(SECRET).encode(),
        "percent": "".join(f"%{b:02X}" for b in RAW).encode(),
        "json": json.dumps(SECRET).encode(),
    }


@pytest.mark.parametrize("how", encodings())
def test_no_encoding_comes_out_however_the_stream_is_cut(how: str) -> None:
    text = b"before " + encodings()[how] + b" after\n"
    for pieces in cuts(text):
        out = through(Masker([SECRET]), pieces)
        assert out.startswith(b"before ") and out.endswith(b" after\n") and b"***" in out
        assert longest_common(out, encodings()[how]) <= 8, (out, pieces)


@pytest.mark.parametrize("how", ["base64 after 1 bytes", "hex"])
@pytest.mark.parametrize("width", [5, 11, 76])
def test_nor_broken_into_lines(how: str, width: int) -> None:
    """As `base64` and `xxd -p` do; lines of fewer characters than a beginning that is held show that beginning at most."""
    whole = encodings()[how] * 3
    text = b"before\n" + b"\n".join(whole[i : i + width] for i in range(0, len(whole), width)) + b"\nafter\n"
    for pieces in cuts(text):
        out = through(Masker([SECRET]), pieces)
        assert longest_common(out.translate(None, b"\r\n"), encodings()[how]) <= 12, (out, pieces)
        assert out.endswith(b"after\n")


def longest_common(out: bytes, form: bytes) -> int:
    return max((j - i for i in range(len(form)) for j in range(i + 1, len(form) + 1) if form[i:j] in out), default=0)


def test_the_cost_of_a_piece_is_bounded() -> None:
    """Sixty-four long secrets over ordinary output, and output made to look like the beginning of one."""
    masker = Masker([f"{number:02d}" + binascii.hexlify(bytes([number]) * 60).decode() for number in range(64)] + ["a" * 60_000 + "b"])
    began_s = time.process_time()
    for piece in (b"step 10 loss 0.1\n" * 4000, b"a" * 65_536, b"a\n" * 32_768, b"a" * 65_536):
        masker.feed(piece)
    assert time.process_time() - began_s < 5.0


def test_a_line_is_not_held_back_for_a_letter() -> None:
    masker = Masker([SECRET])
    line = b"step 3: loss 0.25 p\n"
    assert masker.feed(line) == line


def test_a_rotated_secret_is_covered_from_then_on() -> None:
    masker = Masker(["old-value-1234"])
    masker.add(["new-value-5678"])
    out = through(masker, [b"old-value-1234 new-va", b"lue-5678"])
    assert re.fullmatch(rb"\*\*\* \*\*\*", out)
