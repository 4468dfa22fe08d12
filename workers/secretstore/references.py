"""References to values kept elsewhere: `file:`, `env:`, `vault:` and `aws:`. Pure.

`file:/run/hub`, `env:HUB_TOKEN` (of the agent's environment), `vault:secret/team/hub#token` (mount, path and field of a KV engine, version
2), `aws:prod/hub#token` (a secret of Secrets Manager by name or ARN; with a field of its JSON where one is named).
"""

import re
from dataclasses import dataclass

from trainhouse.events.model.secret_names import VARIABLE
from trainhouse.workers.secretstore.errors import SecretError

KINDS = ("file", "env", "vault", "aws")


@dataclass(frozen=True)
class Reference:
    """One place. `field`: of what is there, where that has several."""

    kind: str
    place: str
    field: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}" + (f"#{self.field}" if self.field else "")


def parse_reference(text: str) -> Reference:
    """Reads a reference. Raises SecretError with what is wrong."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in KINDS or not rest or re.search(r"[\x00-\x1f]", rest):
        raise SecretError(f"{text[:200]!r} is no reference: write {', '.join(f'{k}:…' for k in KINDS)}")
    if kind == "file":
        if not rest.startswith("/"):
            raise SecretError(f"file:{rest}: name the file by its whole path, from /")
        return Reference(kind, rest)
    if kind == "env":
        if not re.fullmatch(VARIABLE, rest):
            raise SecretError(f"env:{rest}: name a variable of the agent's environment")
        return Reference(kind, rest)
    place, _, field = rest.partition("#")
    if kind == "vault" and (not field or not re.fullmatch(r"[^/]+/[^/].*", place) or ".." in place.split("/")):
        raise SecretError(f"{kind}:{rest}: write vault:MOUNT/PATH#FIELD, as vault:secret/team/hub#token")
    return Reference(kind, place, field)
