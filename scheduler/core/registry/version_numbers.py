"""Semver of a model's next version, by the facts of its content. Pure.

Holds: major where input or output schema differ, minor where data or code differ, patch else; a request only raises the step.
"""

from typing import Final

from trainhouse.events import VersionBump, VersionFacts

FIRST: Final = "1.0.0"
_RANK: Final = {VersionBump.PATCH: 0, VersionBump.MINOR: 1, VersionBump.MAJOR: 2}


def step_of(before: VersionFacts, facts: VersionFacts) -> tuple[VersionBump, str]:
    """The step that follows from the facts, and why."""
    if before.schema_sha256 != facts.schema_sha256:
        return VersionBump.MAJOR, "input or output schema differs"
    if set(before.data) != set(facts.data):
        return VersionBump.MINOR, "data differ"
    if before.code_sha256 != facts.code_sha256:
        return VersionBump.MINOR, "code differs"
    return VersionBump.PATCH, "same schema, data and code"


def next_semver(newest: str | None, before: VersionFacts | None, facts: VersionFacts, least: VersionBump | None) -> tuple[str, str]:
    """The next semver, and why. `newest`: that of the newest version, whose facts are `before`; None: there is none."""
    if newest is None or before is None:
        return FIRST, "first version"
    step, why = step_of(before, facts)
    if least is not None and _RANK[least] > _RANK[step]:
        step, why = least, f"{least} was asked for ({why})"
    major, minor, patch = (int(part) for part in newest.partition("-")[0].split("."))
    match step:
        case VersionBump.MAJOR:
            return f"{major + 1}.0.0", why
        case VersionBump.MINOR:
            return f"{major}.{minor + 1}.0", why
    return f"{major}.{minor}.{patch + 1}", why
