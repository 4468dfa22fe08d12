"""The labelled failures of `tests/data/failures`: real lines of output, whom they blame, and where the lines are from.

Every third case, in the order of files and of cases in them, is held out, and so is what says it: rules are not made on these.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from trainhouse.events import (
    AttemptNumber,
    DeviceDegraded,
    Epoch,
    FailureCategory,
    GangHung,
    JobId,
    LossDiverged,
    NodeId,
    NodePlacement,
    PoolName,
)
from trainhouse.events.model.ids import DeviceId
from trainhouse.events.model.verdict import DeviceFault
from trainhouse.scheduler.core.blame import Evidence, PastFailure, RankEnd, blame

FOLDER = Path(__file__).parents[1] / "data" / "failures"
JOB = "j-1"
FAILED_AT_MS = 1_700_000_000_000
HELD_OUT = 3

Guess = Callable[[Evidence], FailureCategory]


@dataclass(frozen=True)
class Case:
    """One failure. `label` has the category, and what else must come out."""

    name: str
    source: str
    evidence: Evidence
    label: dict[str, Any] = field(hash=False)
    held_out: bool

    @property
    def category(self) -> FailureCategory:
        return FailureCategory(self.label["category"])


def cases() -> list[Case]:
    """All of them."""
    raw = [entry for path in sorted(FOLDER.glob("*.yaml")) for entry in yaml.safe_load(path.read_text())]
    return [
        Case(e["name"], e["source"], _evidence(e), e["label"], e.get("held_out", at % HELD_OUT == HELD_OUT - 1)) for at, e in enumerate(raw)
    ]


def confusion(some: Iterable[Case], guess: Guess) -> dict[str, dict[str, int]]:
    """Label -> guess -> how many, without zeros."""
    counts = Counter((case.category.value, guess(case.evidence).value) for case in some)
    return {label: {g: n for (at, g), n in sorted(counts.items()) if at == label} for label in sorted({at for at, _ in counts})}


def accuracy(matrix: dict[str, dict[str, int]]) -> float:
    """The share on the diagonal."""
    return sum(row.get(label, 0) for label, row in matrix.items()) / sum(sum(row.values()) for row in matrix.values())


def by_code_alone(evidence: Evidence) -> FailureCategory:
    """What one does without reading output: the first end's exit code or signal, and what was lost."""
    if evidence.lost_node:
        return FailureCategory.NODE
    if evidence.launch_error:
        return FailureCategory.PLATFORM
    if evidence.hung is not None:
        return FailureCategory.NETWORK
    first = min((e for e in evidence.ends if not e.clean), key=lambda e: e.at_ms, default=None)
    if first is None or (first.signal is None and first.exit_code is None):
        return FailureCategory.UNKNOWN
    if first.signal in (7, 9, 15):
        return FailureCategory.NODE
    return FailureCategory.USER_CODE


def _evidence(entry: dict[str, Any]) -> Evidence:
    ends = tuple(_end(at, end) for at, end in enumerate(entry["ends"]))
    known = Evidence(
        JOB,
        ends,
        launch_error=entry.get("launch_error", ""),
        launch_node=entry.get("launch_node", ""),
        lost_node=entry.get("lost_node", ""),
        hung=_hung(entry),
        degraded=_degraded(entry),
        diverged=_diverged(entry),
        recorder=entry.get("recorder", ""),
        placements=_placements(entry),
        failed_at_ms=FAILED_AT_MS,
    )
    same = blame(known).fingerprint
    past = tuple(
        PastFailure(p.get("job", JOB), FAILED_AT_MS - 1000, FailureCategory.UNKNOWN, same if p.get("same") else "other", p["node"])
        for p in entry.get("past", ())
    )
    return Evidence(**{**known.__dict__, "past": past})


def _end(at: int, end: dict[str, Any]) -> RankEnd:
    node = end.get("node", f"n{end['rank']}")
    return RankEnd(
        end["rank"], node, f"{node}-g0", end.get("code"), end.get("signal"), end.get("text", ""), FAILED_AT_MS + end.get("at", at * 10)
    )


def _placements(entry: dict[str, Any]) -> tuple[NodePlacement, ...]:
    ranks = entry.get("ranks", 0)
    if entry.get("same_node"):
        return (_place("n0", 0, ranks),)
    return tuple(_place(f"n{rank}", rank, 1) for rank in range(ranks))


def _place(node: str, first: int, count: int) -> NodePlacement:
    devices = tuple(DeviceId(f"{node}-g{i}") for i in range(count))
    return NodePlacement(node_id=NodeId(node), boot_id="b", address="10.0.0.1", first_rank=first, devices=devices)


def _about() -> dict[str, Any]:
    return {"job_id": JobId(JOB), "attempt": AttemptNumber(0), "epoch": Epoch(1), "pool": PoolName("default")}


def _hung(entry: dict[str, Any]) -> GangHung | None:
    told = entry.get("hung")
    if told is None:
        return None
    return GangHung(**_about(), at_ms=FAILED_AT_MS, silent_s=20.0, limit_s=6.0, **{**told, "ranks": tuple(told["ranks"])})


def _degraded(entry: dict[str, Any]) -> tuple[DeviceDegraded, ...]:
    told = entry.get("degraded")
    if told is None:
        return ()
    node = f"n{told['rank']}"
    at_ms = FAILED_AT_MS - 60_000
    return (
        DeviceDegraded(
            pool=PoolName("default"),
            at_ms=at_ms,
            node_id=NodeId(node),
            boot_id="b",
            device_id=DeviceId(f"{node}-g0"),
            fault=DeviceFault(told["fault"]),
            value=3,
            since_ms=at_ms,
        ),
    )


def _diverged(entry: dict[str, Any]) -> LossDiverged | None:
    if not entry.get("diverged"):
        return None
    return LossDiverged(**_about(), node_id=NodeId("n0"), rank=0, step=310, loss="nan", at_ms=FAILED_AT_MS)
