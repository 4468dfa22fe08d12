"""One rank's end: what it says by itself, and whether it only followed another's.

Holds: rules of the policy come first, then what states a cause, then the exception, then what may only follow, then code and signal.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.events.model.failure_policy import BlameRule
from trainhouse.scheduler.core.blame.attempt_evidence import RankEnd
from trainhouse.scheduler.core.blame.log_parsing import Words, plain, read
from trainhouse.scheduler.core.blame.rules import CAUSES, CONSEQUENCES
from trainhouse.scheduler.core.blame.signals import by_code

RAISED: Final = "python-"  # rules of the program's own exceptions begin with it

# Errors that the code itself makes, wherever they are raised; and those that do when the program's own code raises them.
_ALWAYS_MINE: Final = frozenset(
    {"ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError"}
    | {"AttributeError", "TypeError", "NotImplementedError"}
)
_MINE: Final = frozenset(
    {"ValueError", "KeyError", "IndexError", "AssertionError", "ZeroDivisionError", "FileNotFoundError"}
    | {"IsADirectoryError", "NotADirectoryError"}
)


class Causality(IntEnum):
    """Rank of an exit among those of its gang, by causality: the lowest is the root cause."""

    CAUSE = 0
    BARE = 1
    FOLLOWS = 2
    ASKED = 3


@dataclass(frozen=True)
class Finding:
    """Result of the rules for one rank's exit."""

    end: RankEnd
    standing: Causality
    category: FailureCategory
    rule: str
    summary: str
    fingerprint: str
    mine: bool = False
    shard: str | None = None
    words: Words | None = None


def examine(end: RankEnd, rules: Sequence[BlameRule]) -> Finding:
    """Reads an end."""
    words = read(end.text)
    return (
        _by_policy(end, words, rules)
        or _by_cause(end, words)
        or _by_exception(end, words)
        or _by_follows(end, words)
        or _by_code(end, words)
    )


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _by_policy(end: RankEnd, words: Words, rules: Sequence[BlameRule]) -> Finding | None:
    for rule in rules:
        pattern = _compiled(rule.pattern)
        line = next((x for x in words.short if pattern.search(x)), None)
        if line is not None:
            summary = rule.summary or f"its output matches the pool's rule {rule.name}: {line.strip()}"
            return Finding(end, Causality.CAUSE, rule.category, rule.name, summary, _print(rule.name, words), rule.mine, words=words)
    return None


def _by_cause(end: RankEnd, words: Words) -> Finding | None:
    for rule in CAUSES:
        found = rule.regex.search(words.text)
        if found is not None:
            shard = found.groupdict().get("shard")
            return Finding(end, Causality.CAUSE, rule.category, rule.name, rule.summary, _print(rule.name, words), rule.mine, shard, words)
    return None


def _by_exception(end: RankEnd, words: Words) -> Finding | None:
    """The program's own exception, unless it, or what it was raised from, says that another rank's end caused it."""
    raised = words.raised
    if raised is None or raised.kind in ("KeyboardInterrupt", "SystemExit"):
        return None
    if any(rule.regex.search(line) for rule in CONSEQUENCES for line in raised.chain):
        return None
    summary = f"the program raised {raised.kind}" + (f": {raised.message}" if raised.message else "")
    name = f"{RAISED}{raised.kind}"
    mine = raised.kind in _ALWAYS_MINE or (raised.own and raised.kind in _MINE)
    return Finding(end, Causality.CAUSE, FailureCategory.USER_CODE, name, summary, _print("python", words), mine, words=words)


def _by_follows(end: RankEnd, words: Words) -> Finding | None:
    for rule in CONSEQUENCES:
        if rule.regex.search(words.text):
            return Finding(end, Causality.FOLLOWS, rule.category, rule.name, rule.summary, rule.name, words=words)
    return None


def _by_code(end: RankEnd, words: Words) -> Finding:
    cause = by_code(end.exit_code, end.signal)
    standing = Causality.ASKED if cause.asked else Causality.BARE
    return Finding(end, standing, cause.category, cause.rule, cause.summary, _print(cause.rule, words), cause.mine, words=words)


def _print(rule: str, words: Words) -> str:
    """Equal for equal failures: the rule, the exception's type, and the innermost frames; without them its message."""
    raised = words.raised
    if raised is None:
        return "|".join((rule, *words.frames))
    return "|".join((rule, raised.kind, *(raised.frames or (plain(raised.message),))))
