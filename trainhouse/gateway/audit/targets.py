"""Targets of an access, for the audit: every thing that a request names.

Holds: pure; all parts of an address count, so that a new route's are told before anybody thinks of it; of a question (what follows "?")
those parameters that name things, and of a body its members of these names. What is longer than an event's target is cut there, and whole
in the event's text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from starlette.types import Scope

from trainhouse.events import MemberRole, Project
from trainhouse.events.model.audit_texts import MAX_TEXT_CHARS, kept_back

MAX_TARGET_CHARS = 256
NAMING = frozenset({"job", "id", "run_id", "run_uuid", "experiment_id", "experiment_name", "path", "pool"})
NAMING_MANY = frozenset({"experiment_ids", "run_ids"})


def names_in(body: object) -> tuple[str, ...]:
    """Returns the names in the body of a request, in its order, once each."""
    if not isinstance(body, dict):
        return ()
    found: list[object] = []
    for name, value in body.items():
        if name in NAMING:
            found.append(value)
        elif name in NAMING_MANY and isinstance(value, list):
            found += value
    named = (str(value) for value in found if isinstance(value, str | int) and not isinstance(value, bool) and value != "")
    return tuple(dict.fromkeys(named))


def target_of(scope: Scope, in_body: Sequence[str] = ()) -> tuple[str, str]:
    """The things that a request names; and all of them once more where they are more than a target holds, else nothing."""
    parts = [str(value) for value in scope.get("path_params", {}).values()]
    asked = parse_qsl(scope.get("query_string", b"").decode("utf-8", "replace"), errors="replace")
    named = ",".join([*(value for name, value in asked if name in NAMING), *in_body])
    whole = kept_back("/".join([*parts, *([named] if named else [])]))
    if len(whole) <= MAX_TARGET_CHARS:
        return whole, ""
    return _cut(whole.split(","), ","), whole[:MAX_TEXT_CHARS]


def changed_members(before: Project | None, after: Project) -> str:
    """A project, and whom a change of it makes a member, whose role it changes, and who is none any more."""
    old: Mapping[str, MemberRole] = (before.members if before is not None else None) or {}
    new: Mapping[str, MemberRole] = after.members or {}
    came = [f"+{user} ({new[user]})" for user in sorted(new.keys() - old.keys())]
    went = [f"-{user}" for user in sorted(old.keys() - new.keys())]
    other = [f"~{user} ({new[user]})" for user in sorted(new.keys() & old.keys()) if new[user] != old[user]]
    changes = [*came, *went, *other]
    return _cut([f"{after.name}: members {changes[0]}", *changes[1:]], " ") if changes else after.name


def _cut(parts: list[str], between: str) -> str:
    """Parts as one text that a target holds; how many are left out stands at its end."""
    whole = between.join(parts)
    if len(whole) <= MAX_TARGET_CHARS:
        return whole
    for count in range(len(parts) - 1, 0, -1):
        text = f"{between.join(parts[:count])} and {len(parts) - count} more"
        if len(text) <= MAX_TARGET_CHARS:
            return text
    return whole[: MAX_TARGET_CHARS - 7] + "… more"
