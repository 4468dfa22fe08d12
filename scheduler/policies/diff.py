"""Differences between two policies, field by field.

Holds: teams are compared by name, so an added team is one added team, wherever it stands in the file. Nothing differs: no changes.
Never: reads a file.
"""

from dataclasses import dataclass
from typing import Any

from trainhouse.events.model.policy import SchedulingPolicy

ABSENT = None
"""The value of a field that one of the two does not have."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field, such as `teams.vision.limit.h100`, with its value in the old and the new policy; None: it is not there."""

    field: str
    old: Any
    new: Any


def diff(old: SchedulingPolicy, new: SchedulingPolicy) -> list[FieldChange]:
    """Every field that differs, in the order of the policy's fields; teams by name."""
    before, after = _flat(old), _flat(new)
    fields = [*after, *(f for f in before if f not in after)]
    order = {name: at for at, name in enumerate(SchedulingPolicy.model_fields)}
    fields.sort(key=lambda f: (order[f.split(".")[0]], f if f.startswith("teams.") else ""))
    return [FieldChange(f, before.get(f, ABSENT), after.get(f, ABSENT)) for f in fields if before.get(f, ABSENT) != after.get(f, ABSENT)]


def _flat(policy: SchedulingPolicy) -> dict[str, Any]:
    content = policy.model_dump(mode="json")
    content["teams"] = {team.pop("name"): team for team in content["teams"]}
    flat: dict[str, Any] = {}
    _flatten("", content, flat)
    return flat


def _flatten(path: str, value: Any, into: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _flatten(f"{path}.{key}" if path else str(key), inner, into)
    else:
        into[path] = value
