"""Texts of callers, as the events of the audit take them.

Holds: pure; no token of Trainhouse's; no text is longer than its field in `AccessRefused`, `AccessGranted` and `AccessEnded` may be.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import orjson

MAX_TEXT_CHARS = 64 * 1024
# A token, a session or a code that somebody put where a name belongs.
_KEPT_BACK = re.compile(r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*|gAAAAA[\w=-]{20,}")
MAX_CHARS = {"action": 256, "target": 256, "sub": 128, "token_id": 128, "session_id": 128, "address": 64, "reason": 1024}  # nosec B105  # bounds


def cut(**texts: str) -> dict[str, Any]:
    """The texts by their fields, cut to their bounds."""
    return {field: text[: MAX_CHARS[field]] for field, text in texts.items()}


def kept_back(text: str) -> str:
    """A text without tokens, as an event takes it."""
    return _KEPT_BACK.sub("…", whole_characters(text))


def whole_characters(text: str) -> str:
    """A text without halves of characters: JSON and heads of requests may hold these, an event and an answer may not."""
    return text.encode("utf-8", "replace").decode()


def statement_text(statement: str, parameters: Mapping[str, Any] | None = None) -> dict[str, str]:
    """A statement in SQL with the values bound to it, as an event takes it: both of its ends, and its hash, where it is too long."""
    text = kept_back(statement)
    if parameters:
        text += kept_back("\n-- parameters: " + orjson.dumps(parameters).decode())
    if len(text) <= MAX_TEXT_CHARS:
        return {"text": text}
    half = MAX_TEXT_CHARS // 2  # the beginning alone could be a comment
    return {"text": f"{text[:half]}…{text[1 - half :]}", "text_sha256": hashlib.sha256(text.encode()).hexdigest()}
