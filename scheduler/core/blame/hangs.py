"""Location of a gang's hang, and whether it repeats: the same rank at the same step, or the same place, twice is the job's own fault.

Holds: a node on which the hang came once more, and of which something else is known (a degraded device, failures of other jobs), stays to
blame; so do network, store and device, which may well fail twice alike.
"""

from collections.abc import Sequence
from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.events.model.verdict import Hang
from trainhouse.events.wire.stack_tops import found_in
from trainhouse.scheduler.core.blame.attempt_evidence import Blamed, Evidence, PastFailure
from trainhouse.scheduler.core.blame.flight_recorder import recorder_finding
from trainhouse.scheduler.core.blame.gang import Gang
from trainhouse.scheduler.core.blame.history import WINDOW_MS

_MAY_BE_THE_JOBS: Final = frozenset({FailureCategory.NODE, FailureCategory.UNKNOWN, FailureCategory.DATA, FailureCategory.USER_CODE})
_MAX_RANKS: Final = 8
_MAX_PLACE_CHARS: Final = 200


def hang_of(evidence: Evidence, gang: Gang) -> Hang | None:
    """Location of the hang by verdict, flight recorders and stacks; None if the gang did not hang. Texts of ranks may name any rank: only
    the gang's own count."""
    hung = evidence.hung
    if hung is None:
        return None
    own = frozenset(gang.ranks)
    finding = recorder_finding((evidence.recorder, *(end.text for end in evidence.ends)))
    ranks = hung.ranks or tuple(rank for rank in (finding.absent if finding is not None else ()) if rank in own)
    stacks = {rank: frames for end in evidence.ends for rank, frames in found_in(end.text).items() if rank in own}
    stack = next((stacks[rank] for rank in (*ranks, *sorted(stacks)) if rank in stacks), "")
    collective = finding.what if finding is not None else ""
    return Hang(ranks=ranks[:_MAX_RANKS], step=hung.step, collective=collective[:_MAX_PLACE_CHARS], stack=stack[:_MAX_PLACE_CHARS])


def alike(one: Hang, other: Hang) -> bool:
    """Whether two hangs are one: by rank and step, and by collective or stack where both are known."""
    if (one.ranks, one.step) != (other.ranks, other.step):
        return False
    known = [(a, b) for a, b in ((one.collective, other.collective), (one.stack, other.stack)) if a and b]
    return any(a == b for a, b in known) if known else one.step is not None and bool(one.ranks)


def weigh_hang(found: Blamed, evidence: Evidence, gang: Gang) -> Blamed:
    """The same blame with where it hung; the job's own where that came before."""
    hang = hang_of(evidence, gang)
    if hang is None:
        return found
    found = found.but(hang=hang)
    if found.mine or evidence.lost_node or found.category not in _MAY_BE_THE_JOBS:
        return found
    recent = [p for p in evidence.past if not evidence.failed_at_ms or evidence.failed_at_ms - p.at_ms <= WINDOW_MS]
    before = [p for p in recent if p.job_id == evidence.job_id and p.hang is not None and alike(hang, p.hang)]
    moved = any(p.node_id and p.node_id != found.node_id for p in before) and found.node_id is not None
    if not before or not (moved or _healthy(found, evidence, recent)):
        return found
    return found.but(
        category=FailureCategory.DATA if found.category is FailureCategory.DATA else FailureCategory.USER_CODE,
        rule="same-hang",
        summary=f"hung {_times(len(before) + 1)} {_where(hang)}, so it is the job's own",
        node_id=None,
        device_id=None,
        rank=hang.ranks[0] if hang.ranks else None,
        fingerprint="same-hang",
        mine=True,
    )


def _healthy(found: Blamed, evidence: Evidence, recent: Sequence[PastFailure]) -> bool:
    """Whether nothing else is held against the blamed node; of several nodes, against any of them."""
    if any(found.node_id in (None, seen.node_id) for seen in evidence.degraded):
        return False
    return not any(p.job_id != evidence.job_id and not p.mine and found.node_id in (None, p.node_id) for p in recent)


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _where(hang: Hang) -> str:
    at = "before its first step" if hang.step is None else f"after step {hang.step}"
    ranks = f" in rank{'s' if len(hang.ranks) > 1 else ''} {', '.join(map(str, hang.ranks))}" if hang.ranks else ""
    place = hang.collective or hang.stack
    return f"{at}{ranks}" + (f" ({place})" if place else "")
