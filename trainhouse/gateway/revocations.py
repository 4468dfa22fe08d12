"""Which tokens count no more.

Holds: until it is known what was revoked before, no token can be checked, and none is let in.
"""

from dataclasses import dataclass, field


@dataclass
class Revocations:
    """Ids of revoked tokens. `known`: whether all of before are in."""

    known: bool = False
    ids: set[str] = field(default_factory=set)

    def add(self, token_id: str) -> None:
        """A token counts no more."""
        self.ids.add(token_id)

    def complete(self) -> None:
        """All of before are in."""
        self.known = True
