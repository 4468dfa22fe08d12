"""The script of an emulated fleet, a YAML file: faults at exact moments or of nodes that are busy, and how jobs of some names behave.

    faults:
      - {at_s: 5, node: 3, kind: die, for_s: 20}      # kinds: die, notice, silent, restart; for_s: never (die and notice only)
      - {at_s: 9, node: 4, kind: notice, deadline_s: 60}      # the machine is gone a minute later, for 120 s
      - {busy_s: 3, node: 5, kind: die}      # as soon as a gang has trained on it for 3 s; without `node`: the first of which this is true
      - {busy_s: 3, kind: die, for_s: lost}      # back as soon as the detector has given it up (die and silent only)
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
from trainhouse.workers.fleet.faults import DEADLINE_S, LOST, NODE_FAULTS, SILENT, NodeFault, for_s
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
    unknown = set(entry) - {"at_s", "busy_s", "node", "kind", "for_s"} - ({"deadline_s"} if entry.get("kind") == "notice" else set())
    if unknown:
        raise ValueError(
            f"a fault has at_s or busy_s, node, kind and for_s, a notice deadline_s, not {', '.join(sorted(map(str, unknown)))}"
        )
    kind = entry["kind"]
    if kind not in NODE_FAULTS:
        raise ValueError(f"there is no kind {kind!r}; there are {', '.join(NODE_FAULTS)} (a job's own are under `jobs`)")
    at_ms, busy_ms = _when(entry)
    node = entry.get("node") if busy_ms is not None else entry["node"]
    if node is not None and (type(node) is not int or not 0 <= node < nodes):
        raise ValueError(f"node {node!r} is none of 0 to {nodes - 1}")
    deadline_s = float(entry.get("deadline_s", DEADLINE_S))
    if not 0 < deadline_s < 1e9:
        raise ValueError(f"deadline_s {deadline_s:g} is no time until a machine goes")
    until_lost = entry.get("for_s") == LOST
    if until_lost and kind not in SILENT:
        raise ValueError(f"only a node that is silent is given up ({', '.join(SILENT)}); give {kind} a number of seconds")
    return NodeFault(at_ms, node, kind, None if until_lost else for_s(kind, entry.get("for_s")), deadline_s, busy_ms, until_lost)


def _when(entry: dict[str, Any]) -> tuple[int, int | None]:
    """The moment of a fault after the start, ms, or for how long its node has been busy, ms."""
    if "at_s" in entry and "busy_s" in entry:
        raise ValueError("write at_s (a moment) or busy_s (once a gang has trained there for so long), not both")
    name = "busy_s" if "busy_s" in entry else "at_s"
    value_s = float(entry[name])
    if not 0 <= value_s < 1e9:
        raise ValueError(f"{name} {value_s:g} is no {'moment after the start' if name == 'at_s' else 'time that a gang trains'}")
    return (0, round(value_s * 1000)) if name == "busy_s" else (round(value_s * 1000), None)


def _rule(entry: dict[str, Any]) -> Rule:
    wishes = {k: v for k, v in entry.items() if k != "name"}
    unknown = sorted(str(k) for k in wishes if k not in WISHES)
    if unknown:
        raise UnsupportedEmulationError(f"nothing like {', '.join(unknown)} can be emulated; there are name, {', '.join(WISHES)}")
    return Rule(str(entry["name"]), {k: wish(k, v) for k, v in wishes.items()})
