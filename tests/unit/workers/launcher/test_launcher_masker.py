"""Secrets never pass the masker, however the stream is cut; all else passes unchanged."""

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from trainhouse.workers.launcher.masker import Masker

SECRETS = ("hunter2", "hunter22", "abab", "secret with\nlines inside")
WORDS = st.sampled_from(["hunter", "2", "22", "ab", "a", "b", "secret with", "\n", "lines inside", "plain text ", "ünï", "abababa"])


def masked(text: bytes, cuts: list[int]) -> bytes:
    masker = Masker(SECRETS)
    edges = [0, *sorted(c % (len(text) + 1) for c in cuts), len(text)]
    return b"".join(masker.feed(text[a:b]) for a, b in itertools.pairwise(edges)) + masker.flush()


@given(st.lists(WORDS, max_size=30), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_gives_no_secret(words: list[str], cuts: list[int]) -> None:
    text = "".join(words).encode()
    out = masked(text, cuts)
    assert not any(secret.encode() in out for secret in SECRETS)
    pieces = re.split(rb"\*\*\*", out)
    at = 0
    for piece in pieces:  # what is left of the text is in it, in order
        found = text.find(piece, at)
        assert found >= 0
        at = found + len(piece)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_without_secrets_nothing_changes(text: bytes, cuts: list[int]) -> None:
    masker = Masker(())
    assert masker.feed(text) + masker.flush() == text


def test_a_secret_in_two_pieces() -> None:
    masker = Masker(["tokentoken"])
    assert masker.feed(b"it is token") == b"it is "
    assert masker.feed(b"token!") == b"***!"
    assert masker.flush() == b""


def test_a_secret_that_begins_with_another_one() -> None:
    masker = Masker(["hunter2", "hunter2-and-more"])
    assert masker.feed(b"hunter2") == b""
    assert masker.feed(b"-and-more, hunter2") == b"***, "
    assert masker.feed(b" ") + masker.flush() == b"*** "


def test_a_beginning_that_was_none_comes_out_at_the_end() -> None:
    masker = Masker(["tokentoken"])
    assert masker.feed(b"tok") + masker.flush() == b"tok"


def test_it_holds_back_less_than_a_secret() -> None:
    masker = Masker(["x" * 50])
    shown = masker.feed(b"y" * 1000 + b"x" * 49)
    assert len(shown) == 1000


def test_very_short_secrets_would_eat_ordinary_text_and_are_left() -> None:
    masker = Masker(["ab"])
    assert masker.feed(b"about") + masker.flush() == b"about"
