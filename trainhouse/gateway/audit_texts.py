"""What callers wrote, as the events of the audit take it.

Holds: pure; no text is longer than its field in `AccessRefused`, `AccessGranted` and `AccessEnded` may be.
"""

from __future__ import annotations

from typing import Any

MAX_CHARS = {"action": 256, "target": 256, "sub": 128, "token_id": 128, "session_id": 128, "address": 64, "reason": 1024}  # nosec B105  # bounds


def cut(**texts: str) -> dict[str, Any]:
    """The texts by their fields, cut to their bounds."""
    return {field: text[: MAX_CHARS[field]] for field, text in texts.items()}
