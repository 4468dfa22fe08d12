"""One probe's result, and the counts of a campaign.

Holds: a probe succeeds only by evidence: the canary in an answer, a write that was accepted, a file that was read or made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_SHOWN = 20


@dataclass(frozen=True)
class Outcome:
    """What one probe tried and what came back. `leak`: the evidence of a success; empty where the door held."""

    door: str
    kind: str
    tried: str
    answer: str
    leak: str = ""


@dataclass
class Tally:
    """Counts by door, kind and answer, and every success."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    successes: list[Outcome] = field(default_factory=list)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Counts outcomes as they come; blocks while they are made."""
        for each in outcomes:
            self.counts[each.door, each.kind, each.answer] += 1
            if each.leak:
                self.successes.append(each)

    @property
    def total(self) -> int:
        """How many probes were made."""
        return sum(self.counts.values())

    def lines(self) -> Iterator[str]:
        """The result for a person: one line for each door and kind, then the successes."""
        kinds = sorted({(door, kind) for door, kind, _ in self.counts})
        for door, kind in kinds:
            answers = {answer: n for (d, k, answer), n in self.counts.items() if (d, k) == (door, kind)}
            told = ", ".join(f"{answer} {n}" for answer, n in sorted(answers.items(), key=lambda pair: (-pair[1], pair[0])))
            yield f"{door:<8} {kind:<28} {sum(answers.values()):>6}  {told}"
        for each in self.successes[:MAX_SHOWN]:
            yield f"SUCCESS  {each.door} {each.kind}: {each.tried[:200]!r} -> {each.answer}: {each.leak[:200]!r}"
        if len(self.successes) > MAX_SHOWN:
            yield f"… and {len(self.successes) - MAX_SHOWN} more"

    def json(self) -> str:
        """One line of JSON."""
        by_door: Counter[str] = Counter()
        for (door, _, _), n in self.counts.items():
            by_door[door] += n
        return json.dumps({"probes": self.total, "successes": len(self.successes), "by_door": dict(sorted(by_door.items()))})
