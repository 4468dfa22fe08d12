"""From evidence to blame: which end was the first that came by itself, and what verdicts and history say of it.

Holds: what a rank says by itself counts before what silence, peers and timeouts suggest; a hint never outweighs a statement.
"""

from collections.abc import Sequence
from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.events.model.failure_policy import BlameRule
from trainhouse.scheduler.core.blame.attempt_evidence import Blamed, Evidence, RankEnd
from trainhouse.scheduler.core.blame.gang import Gang
from trainhouse.scheduler.core.blame.hangs import weigh_hang
from trainhouse.scheduler.core.blame.history import weigh
from trainhouse.scheduler.core.blame.log_parsing import plain
from trainhouse.scheduler.core.blame.rank_exit import Causality, Finding, examine
from trainhouse.scheduler.core.blame.rules import LAUNCH
from trainhouse.scheduler.core.blame.shards import shard_in
from trainhouse.scheduler.core.blame.stall_attribution import by_silence

SUMMARY_CHARS: Final = 1024
SHARD_CHARS: Final = 512
PRINT_CHARS: Final = 256
MAX_ENDS: Final = 32  # texts read per failure: a gang of thousands says the same thing thousands of times
DEGRADED_MS: Final = 10 * 60_000
_DOUBTFUL: Final = frozenset({FailureCategory.UNKNOWN, FailureCategory.NETWORK, FailureCategory.USER_CODE, FailureCategory.NODE})


def blame(evidence: Evidence, rules: Sequence[BlameRule] = ()) -> Blamed:
    """Whom a failure is blamed on. `rules` are those of the pool's policy, in their order. Takes milliseconds."""
    gang = Gang(evidence.placements, evidence.ends)
    found = _first(evidence, gang, rules)
    found = weigh_hang(weigh(_by_device(found, evidence, gang), evidence), evidence, gang)
    shard = found.shard[:SHARD_CHARS] if found.shard else None
    return found.but(summary=found.summary[:SUMMARY_CHARS], fingerprint=found.fingerprint[:PRINT_CHARS], shard=shard)


def _first(evidence: Evidence, gang: Gang, rules: Sequence[BlameRule]) -> Blamed:
    if evidence.launch_error:
        return _by_launch(evidence, rules)
    if evidence.diverged is not None:
        # The session's own word, from before any rank ended: whatever their ends say, they followed.
        loss = evidence.diverged
        text = f"the loss was {loss.loss} at step {loss.step} on rank {loss.rank}"
        return Blamed(FailureCategory.USER_CODE, "loss-diverged", text, rank=loss.rank, fingerprint="loss-diverged", mine=True)
    findings = [examine(end, rules) for end in _to_read(evidence.ends)]
    root = _root(findings, hung=evidence.hung is not None)
    if root is not None and root.standing is Causality.CAUSE:
        return _by_end(root, evidence)
    if evidence.lost_node:
        return Blamed(FailureCategory.NODE, "node-lost", f"node {evidence.lost_node} was lost", evidence.lost_node, fingerprint="node-lost")
    if root is not None and root.standing is Causality.BARE:
        return _by_end(root, evidence)
    return by_silence(evidence, gang, findings)


def _to_read(ends: Sequence[RankEnd]) -> list[RankEnd]:
    """Failed ends by time, the first of each text and end."""
    seen: set[tuple[int | None, int | None, str]] = set()
    chosen: list[RankEnd] = []
    for end in sorted((e for e in ends if not e.clean), key=lambda e: (e.at_ms, e.rank)):
        key = (end.exit_code, end.signal, end.text)
        if key not in seen and len(chosen) < MAX_ENDS:
            seen.add(key)
            chosen.append(end)
    return chosen


def _root(findings: Sequence[Finding], *, hung: bool) -> Finding | None:
    """The first end that came by itself. Of a gang that hung, ends without a word are those that its release brought."""
    by_itself = (Causality.CAUSE,) if hung else (Causality.CAUSE, Causality.BARE)
    return next((f for f in findings if f.standing in by_itself), None)


def _by_end(root: Finding, evidence: Evidence) -> Blamed:
    end = root.end
    shard = root.shard or (shard_in(end.text, evidence.shards) if root.category is FailureCategory.DATA else None)
    where = f"rank {end.rank}" + (f" on node {end.node_id}" if end.node_id else "")
    return Blamed(
        root.category,
        root.rule,
        f"{where}: {root.summary}",
        end.node_id or None,
        end.device_id or None,
        end.rank,
        shard,
        root.fingerprint,
        root.mine,
    )


def _by_launch(evidence: Evidence, rules: Sequence[BlameRule]) -> Blamed:
    """Ranks that could not be started: the policy's rules, ours for launches, else the platform."""
    text = evidence.launch_error
    node = evidence.launch_node or None
    end = RankEnd(-1, evidence.launch_node, "", None, None, text, evidence.failed_at_ms)
    finding = examine(end, rules)
    summary = f"node {evidence.launch_node} could not start its ranks: {text}"
    if rules and finding.rule in {r.name for r in rules}:
        return Blamed(finding.category, finding.rule, summary, node, fingerprint=f"launch|{finding.rule}", mine=finding.mine)
    rule = next((r for r in LAUNCH if r.regex.search(text)), None)
    if rule is None:
        return Blamed(FailureCategory.PLATFORM, "launch", summary, node, fingerprint=f"launch|{plain(text)}")
    return Blamed(rule.category, rule.name, summary, node, fingerprint=f"launch|{rule.name}", mine=rule.mine)


def _by_device(found: Blamed, evidence: Evidence, gang: Gang) -> Blamed:
    """A device that was seen to degrade minutes before is to blame for what has no surer cause."""
    if found.mine or found.category not in _DOUBTFUL or found.rule == "node-lost":
        return found
    for seen in evidence.degraded:
        recent = not evidence.failed_at_ms or evidence.failed_at_ms - seen.at_ms <= DEGRADED_MS
        same = found.device_id == seen.device_id if found.device_id else gang.rank_of(seen.device_id) is not None
        if recent and same:
            rank = gang.rank_of(seen.device_id)
            detail = seen.evidence or f"{seen.value:g}"
            text = f"device {seen.device_id} of node {seen.node_id} was {seen.fault} ({detail}) shortly before: {found.summary}"
            fingerprint = f"device|{seen.fault}"
            return Blamed(
                FailureCategory.DEVICE, f"device-{seen.fault.lower()}", text, seen.node_id, seen.device_id, rank, None, fingerprint
            )
    return found
