"""Analysis of a gang's flight recorder dumps: the collective in which ranks waited, and the ranks that never entered it.

Holds: only recorded entries count; ranks without a dump are named as such, and taken for absent only if no other rank is.
A group is its description and its ranks: torch describes all groups of a mesh dimension alike. An absent rank that waits in another group
comes after one that waits nowhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from trainhouse.events.wire.collectives import LEAD, AtCollective, spans

_NAMED: Final = 8


@dataclass(frozen=True)
class RecorderFinding:
    """The sentence, the ranks that never came, whether ranks called different things, what the others waited in, and these."""

    sentence: str
    absent: tuple[int, ...] = ()
    disagree: bool = False
    what: str = ""
    waiting: tuple[int, ...] = ()


def recorder_finding(texts: Iterable[str]) -> RecorderFinding | None:
    """Of the reasons of ranks' ends; None when no recorder said anything of use."""
    groups: dict[tuple[str, tuple[int, ...]], dict[int, AtCollective]] = {}
    for text in texts:
        for at in AtCollective.found_in(text):
            groups.setdefault((at.group, at.members), {}).setdefault(at.rank, at)
    answers = [answer for _, ranks in sorted(groups.items()) if (answer := _of_group(list(ranks.values()))) is not None]
    waiting = {rank for answer in answers if answer.absent for rank in answer.waiting}
    causes = [a for a in answers if a.disagree or set(a.absent) - waiting] or [a for a in answers if a.absent] or answers
    return causes[0] if causes else None


def _of_group(ranks: Sequence[AtCollective]) -> RecorderFinding | None:
    """Ranks that waited in the collective which the furthest rank had not done, and those that had not begun it."""
    latest = max(at.at for at in ranks)
    behind = sorted(at.rank for at in ranks if at.begun < latest)
    here = sorted((at for at in ranks if at.at == latest and at.begun >= latest), key=lambda at: at.rank)
    if not here or (all(at.done >= latest for at in here) and not behind):
        return None
    waiting = tuple(at.rank for at in here)
    kinds = sorted({at.what for at in here})
    where = f"collective {latest} of {here[0].group}"
    if len(kinds) > 1 and "unknown" not in kinds:
        return RecorderFinding(f"{LEAD} ranks disagree in {where}: {' against '.join(kinds[:_NAMED])}", disagree=True)
    silent = sorted(set(here[0].members) - {at.rank for at in ranks})
    absent = tuple(behind or silent)
    wait = f"{LEAD} in {where} ({kinds[0]}) {_ranks(waiting)} wait{'s' if len(waiting) == 1 else ''}"
    if behind:
        return RecorderFinding(f"{wait} for {_ranks(behind)}, which had not begun it", absent, False, kinds[0], waiting)
    if silent:
        return RecorderFinding(f"{wait} for {_ranks(silent)}, which left no dump", absent, False, kinds[0], waiting)
    return RecorderFinding(f"{wait} for each other: every rank came to it", what=kinds[0], waiting=waiting)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {spans(ranks)}"
