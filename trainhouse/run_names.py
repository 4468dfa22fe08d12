"""Names of runs by what differs between them: one rule for the jobs of a sweep and for runs that are compared.

Holds: pure; imports nothing of ours. A name is at most MAX_NAME_CHARS long where something was added to it.
"""

from collections.abc import Mapping, Sequence

Value = bool | int | float | str | None
MAX_NAME_CHARS, MAX_ENDING_CHARS = 128, 96
ID_CHARS = 6


def name_of(name: str, differs: Sequence[str], point: Mapping[str, Value]) -> str:
    """The name of one run, with what differs: `lr-sweep lr=0.1`. Values are cut before the name gets too long."""
    ending = " ".join(f"{axis}={point[axis]}" for axis in differs if axis in point)
    ending = "".join(char if char.isprintable() else " " for char in ending)
    if not ending:
        return name
    if len(ending) > MAX_ENDING_CHARS:
        ending = ending[: MAX_ENDING_CHARS - 1] + "…"
    return f"{name[: MAX_NAME_CHARS - len(ending) - 1]} {ending}"


def names_of(names: Mapping[str, str], points: Mapping[str, Mapping[str, Value]]) -> dict[str, str]:
    """A name for each run by its id: its own where no other run has it, else with the parameters that differ among those that share it, and
    at last with the end of its id."""
    sharing: dict[str, list[str]] = {}
    for run_id, name in names.items():
        sharing.setdefault(name or run_id, []).append(run_id)
    found: dict[str, str] = {}
    for name, run_ids in sharing.items():
        if len(run_ids) == 1:
            found[run_ids[0]] = name
            continue
        own = {run_id: points.get(run_id, {}) for run_id in run_ids}
        differs = [key for key in sorted(set().union(*own.values())) if _differ([point.get(key) for point in own.values()])]
        found |= {run_id: name_of(name, differs, point) for run_id, point in own.items()}
    count: dict[str, int] = {}
    for name in found.values():
        count[name] = count.get(name, 0) + 1
    return {run_id: name if count[name] == 1 else f"{name} {run_id[-ID_CHARS:]}" for run_id, name in ((i, found[i]) for i in names)}


def _differ(values: Sequence[Value]) -> bool:
    return any(value != values[0] for value in values)
