"""A spec in a few bytes: enough to know it again, and to name the fields in which another one differs.

Holds: equal specs have equal fingerprints; what a field's default is does not count, so an optional field that a later version adds
changes no fingerprint. Kept for every job for ever, hence small: 8 bytes for each field that is not at its default.
"""

import hashlib
from typing import Any, Final

import orjson

from trainhouse.events import JobSpec
from trainhouse.events.model.spec import FORMER_MAX_INTERVAL_S

_NAME_BYTES: Final = 2
_VALUE_BYTES: Final = 6
_ENTRY_BYTES: Final = _NAME_BYTES + _VALUE_BYTES


def fingerprint(spec: JobSpec) -> bytes:
    """The fingerprint of a spec."""
    fields = _without_former_default(spec.model_dump(mode="json", exclude_defaults=True))
    return b"".join(
        sorted(_digest(name.encode(), _NAME_BYTES) + _digest(_canonical(value), _VALUE_BYTES) for name, value in fields.items())
    )


def _without_former_default(fields: dict[str, Any]) -> dict[str, Any]:
    """Drops fields that hold a former default, so that a job that is sent again keeps its fingerprint."""
    policy = fields.get("checkpoint", {})
    if policy.get("max_interval_s") != FORMER_MAX_INTERVAL_S:
        return fields
    rest = {name: value for name, value in policy.items() if name != "max_interval_s"}
    return {name: value for name, value in (fields | {"checkpoint": rest}).items() if name != "checkpoint" or value}


def differing_fields(old: bytes, spec: JobSpec) -> list[str]:
    """The names of the top-level fields in which a spec differs from a fingerprint, sorted; empty when it is the same spec."""
    before, after = _entries(old), _entries(fingerprint(spec))
    names = {_digest(name.encode(), _NAME_BYTES): name for name in JobSpec.model_fields}
    return sorted(names.get(key, "a field of another version") for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def value_of(name: str, value: object) -> tuple[bytes, bytes]:
    """A field and its value as a fingerprint has them."""
    return _digest(name.encode(), _NAME_BYTES), _digest(_canonical(value), _VALUE_BYTES)


def entry_of(data: bytes, name: bytes) -> bytes | None:
    """The value of a field in a fingerprint, as `value_of` has both; None: the field is at its default."""
    return _entries(data).get(name)


def same_project(known: bytes, project: str) -> bool:
    """Whether a fingerprint is that of a spec of this project."""
    name, value = value_of("project", project)
    return entry_of(known, name) == (None if project == JobSpec.model_fields["project"].default else value)


def _entries(data: bytes) -> dict[bytes, bytes]:
    return {data[i : i + _NAME_BYTES]: data[i + _NAME_BYTES : i + _ENTRY_BYTES] for i in range(0, len(data), _ENTRY_BYTES)}


def _canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _digest(data: bytes, size: int) -> bytes:
    return hashlib.blake2b(data, digest_size=size).digest()
