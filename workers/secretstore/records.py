"""Stored secret: its value or a reference, and the projects that may use it. Pure.

Holds: the name is inside of what is sealed, so a record that was moved to another name is not that one's.
"""

from dataclasses import dataclass, field, replace

import orjson

from trainhouse.events.model.secret_names import SecretName
from trainhouse.workers.secretstore.errors import SealError
from trainhouse.workers.secretstore.references import Reference, parse_reference

FORMAT = 1
KEPT = "kept"


@dataclass(frozen=True)
class SecretRecord:
    """A value that is kept here (bytes of text), or a reference to where it is."""

    name: SecretName
    value: bytes | None = field(default=None, repr=False)
    reference: Reference | None = None
    grants: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """`kept`, or the kind of its reference."""
        return KEPT if self.reference is None else self.reference.kind

    def granted(self, project: str) -> "SecretRecord":
        """With a grant to one more project."""
        return replace(self, grants=tuple(sorted({*self.grants, project} - {self.name.project})))

    def revoked(self, project: str) -> "SecretRecord":
        """Without the grant to a project."""
        return replace(self, grants=tuple(g for g in self.grants if g != project))

    def dumps(self) -> bytes:
        """As JSON, to be sealed."""
        return orjson.dumps(
            {
                "format": FORMAT,
                "project": self.name.project,
                "name": self.name.name,
                "value_hex": None if self.value is None else self.value.hex(),
                "reference": None if self.reference is None else str(self.reference),
                "grants": self.grants,
            }
        )


def load_record(data: bytes, expected: SecretName) -> SecretRecord:
    """Reads a record back. Raises SealError when it is of another name or format."""
    try:
        raw = orjson.loads(data)
        name = SecretName(str(raw["project"]), str(raw["name"]))
        value = None if raw["value_hex"] is None else bytes.fromhex(raw["value_hex"])
        reference = None if raw["reference"] is None else parse_reference(raw["reference"])
        found = SecretRecord(name, value, reference, tuple(str(g) for g in raw["grants"]))
    except (ValueError, KeyError, TypeError) as error:
        raise SealError(f"it is of a format that this version does not read ({type(error).__name__})") from None
    if name != expected or raw.get("format") != FORMAT:
        raise SealError(f"it belongs to {name}: somebody moved the file")
    return found
