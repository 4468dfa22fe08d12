"""The script of an emulated fleet, a YAML file: faults at exact moments, and how jobs of some names behave.

    faults:
      - {at_s: 5, node: 3, kind: die, for_s: 20}      # kinds: die, notice, silent, restart; for_s: never (die and notice only)
      - {at_s: 9, node: 4, kind: notice, deadline_s: 60}      # the machine is gone a minute later, for 120 s
    jobs:
      - {name: "big-*", run_s: 120, checkpoint_s: 30}
      - {name: "bad-*", crash_s: 2, crash_attempts: 1}

Holds: a wrong entry is refused with its place and what to write.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from trainhouse.workers.fleet.errors import InvalidPlanError
from trainhouse.workers.fleet.faults import DEADLINE_S, NODE_FAULTS, NodeFault, for_s
from trainhouse.workers.fleet.scripts import WISHES, Rule, UnsupportedEmulationError, wish

T = TypeVar("T")


@dataclass(frozen=True)
class Script:
    """Content of the script file."""

    faults: tuple[NodeFault, ...] = ()
    rules: tuple[Rule, ...] = ()


def read_script(path: Path, nodes: int) -> Script:
    """Reads and checks the file. Raises InvalidPlanError."""
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise InvalidPlanError(f"the script {path} cannot be read: {error}") from error
    if not isinstance(found, dict) or set(found) - {"faults", "jobs"}:
        raise InvalidPlanError(f"the script {path} has `faults:` and `jobs:`, each a list, and nothing else")
    return Script(
        faults=_each(path, found, "faults", lambda entry: _fault(entry, nodes)),
        rules=_each(path, found, "jobs", _rule),
    )


def _each(path: Path, found: Mapping[str, Any], name: str, read: Callable[[dict[str, Any]], T]) -> tuple[T, ...]:
    entries = found.get(name) or []
    if not isinstance(entries, list):
        raise InvalidPlanError(f"{path}: `{name}` is no list")
    done = []
    for number, entry in enumerate(entries, start=1):
        try:
            if not isinstance(entry, dict):
                raise ValueError("write it as {key: value, …}")
            done.append(read(entry))
        except (ValueError, TypeError, KeyError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise InvalidPlanError(f"{path}, entry {number} of `{name}`: {what}") from error
    return tuple(done)


def _fault(entry: dict[str, Any], nodes: int) -> NodeFault:
    unknown = set(entry) - {"at_s", "node", "kind", "for_s"} - ({"deadline_s"} if entry.get("kind") == "notice" else set())
    if unknown:
        raise ValueError(f"a fault has at_s, node, kind and for_s, a notice deadline_s, not {', '.join(sorted(map(str, unknown)))}")
    node, kind, at_s = entry["node"], entry["kind"], float(entry["at_s"])
    if kind not in NODE_FAULTS:
        raise ValueError(f"there is no kind {kind!r}; there are {', '.join(NODE_FAULTS)} (a job's own are under `jobs`)")
    if type(node) is not int or not 0 <= node < nodes:
        raise ValueError(f"node {node!r} is none of 0 to {nodes - 1}")
    if not 0 <= at_s < 1e9:
        raise ValueError(f"at_s {at_s:g} is no moment after the start")
    deadline_s = float(entry.get("deadline_s", DEADLINE_S))
    if not 0 < deadline_s < 1e9:
        raise ValueError(f"deadline_s {deadline_s:g} is no time until a machine goes")
    return NodeFault(round(at_s * 1000), node, kind, for_s(kind, entry.get("for_s")), deadline_s)


def _rule(entry: dict[str, Any]) -> Rule:
    wishes = {k: v for k, v in entry.items() if k != "name"}
    unknown = sorted(str(k) for k in wishes if k not in WISHES)
    if unknown:
        raise UnsupportedEmulationError(f"nothing like {', '.join(unknown)} can be emulated; there are name, {', '.join(WISHES)}")
    return Rule(str(entry["name"]), {k: wish(k, v) for k, v in wishes.items()})
