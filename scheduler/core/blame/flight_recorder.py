"""Analysis of a gang's flight recorder dumps: the collective in which ranks waited, and the ranks that never entered it.

Holds: only recorded entries count; ranks without a dump are named as such, and taken for absent only if no other rank is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from trainhouse.events.wire.collectives import LEAD, AtCollective, spans

_NAMED: Final = 8


@dataclass(frozen=True)
class RecorderFinding:
    """The sentence, the ranks that never came, whether ranks called different things, and what the others waited in."""

    sentence: str
    absent: tuple[int, ...] = ()
    disagree: bool = False
    what: str = ""


def recorder_finding(texts: Iterable[str]) -> RecorderFinding | None:
    """Of the reasons of ranks' ends; None when no recorder said anything of use."""
    groups: dict[str, dict[int, AtCollective]] = {}
    for text in texts:
        for at in AtCollective.found_in(text):
            groups.setdefault(at.group, {}).setdefault(at.rank, at)
    answers = [answer for _, ranks in sorted(groups.items()) if (answer := _of_group(list(ranks.values()))) is not None]
    return next((a for a in answers if a.absent or a.disagree), answers[0] if answers else None)


def _of_group(ranks: Sequence[AtCollective]) -> RecorderFinding | None:
    """Ranks that waited in the collective which the furthest rank had not done, and those that had not begun it."""
    latest = max(at.at for at in ranks)
    behind = sorted(at.rank for at in ranks if at.begun < latest)
    here = sorted((at for at in ranks if at.at == latest and at.begun >= latest), key=lambda at: at.rank)
    if not here or (all(at.done >= latest for at in here) and not behind):
        return None
    waiting = [at.rank for at in here]
    kinds = sorted({at.what for at in here})
    where = f"collective {latest} of {here[0].group}"
    if len(kinds) > 1 and "unknown" not in kinds:
        return RecorderFinding(f"{LEAD} ranks disagree in {where}: {' against '.join(kinds[:_NAMED])}", disagree=True)
    silent = sorted(set(here[0].members) - {at.rank for at in ranks})
    absent = tuple(behind or silent)
    wait = f"{LEAD} in {where} ({kinds[0]}) {_ranks(waiting)} wait{'s' if len(waiting) == 1 else ''}"
    if behind:
        return RecorderFinding(f"{wait} for {_ranks(behind)}, which had not begun it", absent, what=kinds[0])
    if silent:
        return RecorderFinding(f"{wait} for {_ranks(silent)}, which left no dump", absent, what=kinds[0])
    return RecorderFinding(f"{wait} for each other: every rank came to it", what=kinds[0])


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {spans(ranks)}"
