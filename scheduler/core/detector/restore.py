"""Restoration of a new detector's state from earlier verdicts.

Holds: folded in the order of publication: a verdict stands until its lifting; bounded, the oldest nodes are forgotten first.
"""

from collections.abc import Iterable
from typing import Final

from trainhouse.events.model.verdict import VerdictLifted
from trainhouse.scheduler.core.detector.open_verdicts import VERDICT_TYPES, IssuedVerdict, Stands, stands, thing_of
from trainhouse.scheduler.core.detector.state import DetectorState

MAX_NODES: Final = 20_000
Standings = dict[str, dict[str, Stands]]
"""What stands, by node and by what it speaks of."""


def recall(known: Standings, verdict: IssuedVerdict) -> None:
    """One more event of the topic of verdicts; those that are not the detector's are passed over."""
    node_id = verdict.node_id
    if isinstance(verdict.event, VERDICT_TYPES):
        known.setdefault(node_id, {})[thing_of(verdict.event)] = stands(verdict)
        if len(known) > MAX_NODES:
            del known[next(iter(known))]
    elif isinstance(verdict.event, VerdictLifted) and node_id in known:
        known[node_id].pop(thing_of(verdict.event), None)
        if not known[node_id]:
            del known[node_id]


def still_standing(state: DetectorState, issued: Iterable[IssuedVerdict]) -> list[IssuedVerdict]:
    """Of what was found in heartbeats of the past, what holds now; what came and went in the meantime is not said any more."""
    kept: list[IssuedVerdict] = []
    passed: set[str] = set()
    for one in issued:
        node = state.nodes.get(one.node_id)
        if isinstance(one.event, VerdictLifted):
            holds = one.name.partition(":")[2] not in passed
        else:
            found = node.stands.get(thing_of(one.event)) if node is not None else None
            holds = found is not None and found.name == one.name
            passed |= set() if holds else {one.name}
        if holds:
            kept.append(one)
    return kept
