"""Evidence of one failed attempt, and the verdict: the component blamed for it.

Holds: plain frozen values; nothing here decides. Times are by the reporting node's clock, in milliseconds of the epoch, so two nodes may
disagree. Texts are as they were written: a standard error's last lines, in whatever language.
"""

from dataclasses import dataclass, replace

from trainhouse.events import DeviceDegraded, FailureCategory, GangHung, LossDiverged, NodePlacement
from trainhouse.events.model.verdict import Hang


@dataclass(frozen=True)
class RankEnd:
    """Exit of one rank: `exit_code`, or `signal`; both None when it could not be learnt. `text`: the last lines of its standard error."""

    rank: int
    node_id: str
    device_id: str
    exit_code: int | None
    signal: int | None
    text: str
    at_ms: int

    @property
    def clean(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class PastFailure:
    """An earlier failure, of this job or of another one on a node of this one, as it was blamed then. `got_on`: a checkpoint came after."""

    job_id: str
    at_ms: int
    category: FailureCategory
    fingerprint: str = ""
    node_id: str = ""
    mine: bool = False
    got_on: bool = False
    hang: Hang | None = None


@dataclass(frozen=True)
class Evidence:
    """All that is known when the ranks of an attempt have ended; leave out what is not.

    `placements`: the gang, so that a rank that left no word has a node too. `launch_error` and `launch_node`: why ranks could not be
    started, and where. `lost_node`: a node of the gang that was given up. `recorder`: what the flight recorder's dumps say. `shards`:
    what the job's data is made of, to know a shard's name in a text. `past`: recent failures of this job and, on the nodes of this
    gang, of others; those before `failed_at_ms` less a day count nothing.
    """

    job_id: str
    ends: tuple[RankEnd, ...]
    launch_error: str = ""
    launch_node: str = ""
    lost_node: str = ""
    hung: GangHung | None = None
    degraded: tuple[DeviceDegraded, ...] = ()
    diverged: LossDiverged | None = None
    recorder: str = ""
    shards: tuple[str, ...] = ()
    placements: tuple[NodePlacement, ...] = ()
    past: tuple[PastFailure, ...] = ()
    failed_at_ms: int = 0


@dataclass(frozen=True)
class Blamed:
    """Verdict of attribution and the rule that gave it. `mine`: another attempt would fail the same way.

    `node_id`, `device_id` and `rank` are where it began; that is the culprit if the category is NODE or DEVICE, and a hint otherwise.
    """

    category: FailureCategory
    rule: str
    summary: str
    node_id: str | None = None
    device_id: str | None = None
    rank: int | None = None
    shard: str | None = None
    fingerprint: str = ""
    mine: bool = False
    hang: Hang | None = None

    def but(self, **changes: object) -> "Blamed":
        """The same with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]
