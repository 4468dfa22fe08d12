"""Revoked tokens, sessions and login codes.

Holds: until it is known what was revoked before, no token can be checked, and none is let in; the first event that names an id is the
one that ended it.
"""

from dataclasses import dataclass, field


@dataclass
class Revocations:
    """Revoked ids, each with its event. `known`: whether all earlier ones are in."""

    known: bool = False
    ids: dict[str, str] = field(default_factory=dict)

    def add(self, token_id: str, event_id: str = "") -> None:
        """It counts no more."""
        self.ids.setdefault(token_id, event_id)

    def complete(self) -> None:
        """All of before are in."""
        self.known = True
