"""Attribution by earlier failures: those that follow a job from node to node are the job's, those of every job on a node are the node's.

Holds: only failures of the last day count, and only doubtful ones are judged anew. A large gang meets broken machines and devices every
day: these follow a job only if it got nowhere in between.
"""

from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.scheduler.core.blame.attempt_evidence import Blamed, Evidence, PastFailure

SAME_ON_NODES: Final = 3
OTHERS_ON_NODE: Final = 2
WINDOW_MS: Final = 24 * 3_600_000

_MACHINES_BREAK: Final = frozenset({"node-lost", "machine-check"})

_FOLLOWS_A_JOB: Final = frozenset({FailureCategory.UNKNOWN, FailureCategory.NODE, FailureCategory.DEVICE, FailureCategory.USER_CODE})
_FOLLOWS_A_NODE: Final = frozenset({FailureCategory.UNKNOWN, FailureCategory.USER_CODE, FailureCategory.NETWORK})


def weigh(found: Blamed, evidence: Evidence) -> Blamed:
    """The same blame, or another that history makes likelier."""
    if found.mine or not evidence.past:
        return found
    recent = [p for p in evidence.past if not evidence.failed_at_ms or evidence.failed_at_ms - p.at_ms <= WINDOW_MS]
    return _of_the_job(found, evidence, recent) or _of_the_node(found, evidence, recent) or found


def _of_the_job(found: Blamed, evidence: Evidence, recent: list[PastFailure]) -> Blamed | None:
    """The same failure on SAME_ON_NODES nodes, this one included. A store or a network that fails everywhere is not the job's."""
    same = [p for p in recent if p.job_id == evidence.job_id and p.fingerprint == found.fingerprint and p.fingerprint]
    if found.category is FailureCategory.DEVICE or found.rule in _MACHINES_BREAK:
        same = [p for p in same if not p.got_on]
    nodes = sorted({p.node_id for p in same if p.node_id} | ({found.node_id} if found.node_id else set()))
    if len(nodes) < SAME_ON_NODES:
        return None
    if found.category is FailureCategory.DATA:
        return found.but(mine=True)
    if found.category not in _FOLLOWS_A_JOB:
        return None
    text = f"the same on {len(nodes)} nodes ({', '.join(nodes[:5])}), so it is the job's own: {found.summary}"
    return found.but(category=FailureCategory.USER_CODE, rule="same-on-many-nodes", summary=text, mine=True)


def _of_the_node(found: Blamed, evidence: Evidence, recent: list[PastFailure]) -> Blamed | None:
    """Doubtful failures of OTHERS_ON_NODE other jobs on the same node."""
    if found.node_id is None or found.category not in _FOLLOWS_A_NODE:
        return None
    others = sorted({p.job_id for p in recent if p.job_id != evidence.job_id and p.node_id == found.node_id and not p.mine})
    if len(others) < OTHERS_ON_NODE:
        return None
    text = f"jobs {', '.join(others[:5])} failed on node {found.node_id} too within a day: {found.summary}"
    return found.but(category=FailureCategory.NODE, rule="many-jobs-on-node", summary=text)
