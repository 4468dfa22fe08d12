"""Excerpt of a rank's log: the lines that attribution needs, kept of a rank's end until its gang's failure is attributed.

Holds: pure; lines stay in their order; the result is never longer than asked for.
Never: judges.
"""

import re
from typing import Final

from trainhouse.events.wire.collectives import LEAD
from trainhouse.events.wire.stack_tops import LEAD as STACK
from trainhouse.scheduler.core.blame.log_parsing import MAX_LINE_CHARS, MAX_LINES, exception_lines, plain
from trainhouse.scheduler.core.blame.rules import CAUSES, CONSEQUENCES

_NOISE: Final = re.compile(r"^\s*frame #\d+: |^\s*[\^~]+\s*$|^\s*$| NCCL INFO ")
_LINE_CHARS: Final = 400
_OF_ALL: Final = 2 / 3  # what lines that rules know may take; the rest is the text's end


def gist(text: str, most: int) -> str:
    """The text in `most` characters: without frames of C++ and repeats, then the lines that rules know and the last ones."""
    if len(text) <= most:
        return text
    lines = _without_noise([line[:MAX_LINE_CHARS] for line in text.splitlines()[-MAX_LINES:]])
    whole = "\n".join(lines)
    if len(whole) <= most:
        return whole
    kept = _fill(lines, _informative(lines), round(most * _OF_ALL), set())
    kept = _fill(lines, list(reversed(range(len(lines)))), most, kept)
    return "\n".join(lines[at][:_LINE_CHARS] for at in sorted(kept))[:most]


def _without_noise(lines: list[str]) -> list[str]:
    """No frames of C++, no marks under lines, and of lines that differ by numbers alone the first."""
    kept: list[str] = []
    last = ""
    for line in lines:
        bare = plain(line, MAX_LINE_CHARS)
        if not _NOISE.search(line) and bare != last:
            kept.append(line)
            last = bare
    return kept


def _informative(lines: list[str]) -> list[int]:
    """Lines that rules know, causes first and each rule once; exceptions; what a recorder said."""
    found = [at for at, line in enumerate(lines) if line.startswith((LEAD, STACK))]
    for rule in CAUSES:
        found += [at for at, line in enumerate(lines) if rule.regex.search(line)][:1]
    found += exception_lines(lines)
    for rule in CONSEQUENCES:
        found += [at for at, line in enumerate(lines) if rule.regex.search(line)][:1]
    return found


def _fill(lines: list[str], order: list[int], most: int, kept: set[int]) -> set[int]:
    """Takes lines in this order as long as they fit."""
    size = sum(min(len(lines[at]), _LINE_CHARS) + 1 for at in kept)
    for at in order:
        cost = min(len(lines[at]), _LINE_CHARS) + 1
        if at not in kept and size + cost <= most:
            kept.add(at)
            size += cost
    return kept
