"""Attribution of stalls without an error text: the node that kept the others waiting, by verdict, flight recorder and watchdogs.

Holds: one node that kept the others waiting is to blame; when all waited, it is the network, or unknown.
"""

import re
from collections.abc import Sequence
from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.events.model.node import RankActivity
from trainhouse.scheduler.core.blame.attempt_evidence import Blamed, Evidence
from trainhouse.scheduler.core.blame.flight_recorder import recorder_finding
from trainhouse.scheduler.core.blame.gang import Gang
from trainhouse.scheduler.core.blame.rank_exit import Causality, Finding

_WATCHDOG: Final = re.compile(r"watchdog at work: (\d{1,18}), last enqueued NCCL work: (\d{1,18})")


def by_silence(evidence: Evidence, gang: Gang, findings: Sequence[Finding]) -> Blamed:
    """Whom to blame when every end followed another one, or there is none."""
    recorded = recorder_finding((evidence.recorder, *(end.text for end in evidence.ends)))
    if recorded is not None and recorded.disagree:
        return Blamed(FailureCategory.USER_CODE, "recorder-mismatch", recorded.sentence, fingerprint="recorder-mismatch", mine=True)
    late = _late(gang, recorded.absent, "recorder", recorded.sentence) if recorded is not None and recorded.absent else None
    if late is not None:
        return late
    found = _by_watchdogs(gang, findings) or _by_verdict(evidence, gang) or _by_followers(gang, findings)
    return found if recorded is None else found.but(summary=f"{found.summary}; {recorded.sentence}")


def _late(gang: Gang, ranks: Sequence[int], rule: str, summary: str) -> Blamed | None:
    """One node that others waited for; None when there are several."""
    nodes = gang.nodes_of(ranks)
    if len(nodes) != 1 or len(ranks) == len(gang.ranks):
        return None
    device = gang.place(ranks[0])[1] if len(ranks) == 1 else None
    return Blamed(FailureCategory.NODE, rule, summary, nodes[0], device, ranks[0], None, rule)


def _by_watchdogs(gang: Gang, findings: Sequence[Finding]) -> Blamed | None:
    """Each watchdog says what its rank had enqueued: who had not enqueued what the others waited in kept them waiting."""
    work: dict[int, tuple[int, int]] = {}
    for finding in findings:
        found = _WATCHDOG.search(finding.end.text)
        if found is not None:
            work[finding.end.rank] = (int(found.group(1)), int(found.group(2)))
    latest = max((at for at, _ in work.values()), default=0)
    behind = tuple(sorted(rank for rank, (_, enqueued) in work.items() if enqueued < latest))
    if not behind:
        return None
    text = f"rank {behind[0]} had not begun collective {latest}, in which the others waited until it timed out"
    return _late(gang, behind, "watchdog-behind", text)


def _by_verdict(evidence: Evidence, gang: Gang) -> Blamed | None:
    hung = evidence.hung
    if hung is None:
        return None
    why = hung.evidence or f"no step for {hung.silent_s:g} s"
    if hung.activity is RankActivity.SAVING:
        return Blamed(FailureCategory.STORAGE, "hung-saving", f"the gang hung while it saved: {why}", fingerprint="hung-saving")
    if hung.activity is RankActivity.WAITING_FOR_DATA:
        return Blamed(FailureCategory.DATA, "hung-data", f"the gang hung while it waited for data: {why}", fingerprint="hung-data")
    late = _late(gang, hung.ranks, "hung", f"rank {hung.ranks[0]} fell silent first: {why}") if hung.ranks else None
    if late is not None:
        return late
    everybody = f"every rank waited: {why}"
    if len(gang.nodes_of(gang.ranks)) > 1:
        return Blamed(FailureCategory.NETWORK, "hung-together", everybody, fingerprint="hung-together")
    return Blamed(FailureCategory.UNKNOWN, "hung-together", everybody, fingerprint="hung-together")


def _by_followers(gang: Gang, findings: Sequence[Finding]) -> Blamed:
    first = next((f for f in findings if f.standing is Causality.FOLLOWS), None)
    if first is not None:
        category = FailureCategory.UNKNOWN if gang.on_one_node and len(gang.ranks) > 1 else first.category
        text = f"rank {first.end.rank}: {first.summary}; no rank ended by itself"
        return Blamed(category, first.rule, text, rank=first.end.rank, fingerprint=first.fingerprint)
    asked = next((f for f in findings), None)
    if asked is None:
        return Blamed(FailureCategory.UNKNOWN, "unknown", "no rank said why", fingerprint="unknown")
    end = asked.end
    text = f"rank {end.rank}: {asked.summary}"
    return Blamed(asked.category, asked.rule, text, end.node_id or None, end.device_id or None, end.rank, None, asked.fingerprint)
