"""The bytes of a tunnel: whole again however they are cut, and refused where they are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events.tunnel import tunnel_frames as frames


@given(st.lists(st.tuples(st.sampled_from([frames.DATA, frames.NOTICE]), st.binary(max_size=200))), st.integers(1, 50))
def test_frames_are_whole_however_they_are_cut(sent: list[tuple[bytes, bytes]], cut: int) -> None:
    raw = b"".join(frames.frame(kind, payload) for kind, payload in sent)
    split, found = frames.Frames(), list[tuple[bytes, bytes]]()
    for at in range(0, len(raw), cut):
        found += split.feed(raw[at : at + cut])
    assert found == sent


def test_data_beyond_a_frame_is_several() -> None:
    data = b"x" * (2 * frames.MAX_PAYLOAD_BYTES + 1)
    found = list(frames.Frames().feed(frames.frame(frames.DATA, data)))
    assert b"".join(payload for _, payload in found) == data and len(found) == 3


def test_sizes_and_codes() -> None:
    ((_, size),) = frames.Frames().feed(frames.resize(50, 132))
    assert frames.size_of(size) == (50, 132)
    ((_, code),) = frames.Frames().feed(frames.exited(-15))
    assert frames.code_of(code) == -15


@pytest.mark.parametrize("raw", [b"q\0\0\0\0", b"d\xff\xff\xff\xff"])
def test_what_is_no_frame_is_refused(raw: bytes) -> None:
    with pytest.raises(frames.TunnelFormatError):
        list(frames.Frames().feed(raw))


@pytest.mark.parametrize("raw", [b"", b"GET / HTTP/1.1", b"[1]", b"[" * 5000, b"\xff"])
def test_a_line_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(frames.TunnelFormatError):
        frames.parsed_line(raw)
