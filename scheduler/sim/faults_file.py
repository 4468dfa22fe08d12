"""Faults of nodes: reading them, and giving those of another cluster to the nodes of the simulated fleet.

Holds: times are on the trace's clock after `shift_s`; faults of one node do not overlap; ids that the fleet has in part only are refused.

Where no id is the fleet's, the faults are those of another cluster. Its servers are spread over `servers` places (all of them, also those
that never failed and so are not named), the k-th named one at place k x servers // named; place n is the fleet's node n, places beyond the
fleet are left out, so that a node fails as often as a server did. Nodes beyond `servers` never fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainhouse.scheduler.sim.table import FileError, read_table
from trainhouse.scheduler.sim.types import Fault, SimNode

REQUIRED = ("time_s", "node_id", "repaired_s")
OPTIONAL = ("kind", "level", "class")


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of the fleet, by time, and what there is to say of them."""

    faults: tuple[Fault, ...]
    notes: tuple[str, ...] = ()


def read_faults(path: Path, nodes: Sequence[SimNode], servers: int | None = None, shift_s: int = 0) -> Faults:
    """Reads a file of faults for a fleet. `servers`: the number of machines in it. Raises FileError."""
    notes: list[str] = []
    found = [replace(f, time_s=f.time_s + shift_s, repaired_s=_later(f.repaired_s, shift_s)) for f in _read(path, notes)]
    ids = {n.node_id for n in nodes}
    named = sorted({f.node_id for f in found})
    known = [n for n in named if n in ids]
    if known and len(known) < len(named):
        stranger = next(n for n in named if n not in ids)
        raise FileError(path, f"the fleet has {len(known)} of its {len(named)} nodes, but not {stranger!r}; correct the ids")
    if not known:
        found = _spread(path, found, named, nodes, servers or len(named), notes)
    merged = merge(found)
    if len(merged) < len(found):
        notes.append(f"{len(found):,} faults, {len(merged):,} after those of one node that overlap became one")
    return Faults(tuple(merged), tuple(notes))


def merge(faults: Sequence[Fault]) -> list[Fault]:
    """Faults by time; those of one node that overlap or touch become one, of the first one's kind."""
    last: dict[str, int] = {}
    merged: list[Fault] = []
    for fault in sorted(faults, key=lambda f: (f.time_s, f.node_id)):
        at = last.get(fault.node_id)
        if at is None or _ended(merged[at], fault.time_s):
            last[fault.node_id] = len(merged)
            merged.append(fault)
            continue
        open_ = merged[at]
        both = None if open_.repaired_s is None or fault.repaired_s is None else max(open_.repaired_s, fault.repaired_s)
        merged[at] = replace(open_, repaired_s=both)
    return merged


def _ended(fault: Fault, at_s: int) -> bool:
    return fault.repaired_s is not None and fault.repaired_s < at_s


def _later(at_s: int | None, shift_s: int) -> int | None:
    return None if at_s is None else at_s + shift_s


def _read(path: Path, notes: list[str]) -> list[Fault]:
    found = []
    empty = 0
    for row in read_table(path, REQUIRED, OPTIONAL).rows:
        time_s = row.whole("time_s", 0)
        repaired_s = row.whole("repaired_s", 0) if row.text("repaired_s") else None
        if repaired_s is not None and repaired_s < time_s:
            raise row.wrong("repaired_s", f"nothing (never repaired), or a time not before time_s, {time_s}")
        if repaired_s == time_s:
            empty += 1
            continue
        found.append(Fault(time_s, row.name("node_id"), row.text("kind"), repaired_s))
    if empty:
        notes.append(f"left out {empty:,} faults that were repaired in the second in which they began")
    return found


def _spread(path: Path, faults: list[Fault], named: list[str], nodes: Sequence[SimNode], servers: int, notes: list[str]) -> list[Fault]:
    """The faults of another cluster, on this fleet's nodes."""
    if servers < len(named):
        raise FileError(path, f"it names {len(named)} servers, more than the {servers} of --fault-servers")
    places = {name: k * servers // len(named) for k, name in enumerate(named)}
    kept = [replace(f, node_id=nodes[places[f.node_id]].node_id) for f in faults if places[f.node_id] < len(nodes)]
    if named:
        notes.append(
            f"faults of another cluster: its {servers} servers ({len(named)} of them failed) are the fleet's nodes in order; "
            f"{len(faults) - len(kept):,} faults of servers beyond the fleet are left out"
        )
    return kept
