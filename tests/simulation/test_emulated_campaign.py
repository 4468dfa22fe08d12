"""A short campaign in emulation: faults of all kinds in virtual time, and nothing for the judge to complain about; and it can complain.

`python -m tests.chaos.emulated --seed 1 --faults 1000` is the long one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import orjson
import pytest

from tests.chaos.emulated.campaign import Outcome, emulated
from tests.chaos.emulated.faults import SHARES, Kind, dealt
from tests.chaos.emulated.judge import judge
from tests.chaos.emulated.world import EmulatedWorld
from tests.support.fakes.journal_fakes import Stored
from trainhouse.events.wire.topics import ALLOCATIONS, CONTROL, DECISIONS, STATUS

SEEDS = (1, 2)
FAULTS = 60


@cache
def campaign(seed: int) -> tuple[Outcome, EmulatedWorld]:
    """One campaign for all tests of a seed."""
    print(f"seed {seed}")
    return emulated(seed, FAULTS)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_faults_of_all_kinds_there_is_nothing_to_complain_about(seed: int) -> None:
    outcome, world = campaign(seed)
    assert not outcome.complaints, "\n".join(outcome.lines())
    assert set(outcome.faults) == set(Kind) and outcome.held and outcome.starts > len(world.processes)
    assert outcome.jobs == len(world.ended & world.jobs) > 5


def test_faults_come_from_the_seed_in_their_shares() -> None:
    assert dealt(1, 1000) == dealt(1, 1000) != dealt(2, 1000)
    assert {kind: dealt(1, 1000).count(kind) for kind in Kind} == {kind: 10 * share for kind, share in SHARES.items()}


Log = list[Stored]


def _last(log: Log) -> int:
    return max(n for n, stored in enumerate(log) if stored.visible)


def _doubled(log: Log) -> None:
    log.append(log[_last(log)])


def _hidden(log: Log) -> None:
    log[_last(log)] = replace(log[_last(log)], visible=False)


def _never_taken(log: Log) -> None:
    last = log[_last(log)]
    log.append(replace(last, entry=replace(last.entry, offset=len(log))))


def _other_decision(log: Log) -> None:
    """A status of a record that counts says something else."""
    for n, stored in enumerate(log):
        value = stored.entry.value or b""
        if b'"state":"RUNNING"' in value and b'"inputs":[{' in value:
            log[n] = replace(stored, entry=replace(stored.entry, value=value.replace(b'"state":"RUNNING"', b'"state":"PENDING"', 1)))
            return


WRONG: list[tuple[str, Callable[[Log], None], str]] = [
    (ALLOCATIONS, _doubled, "came twice"),
    (STATUS, _doubled, "came twice"),
    (STATUS, _hidden, "was never public"),
    (CONTROL, _never_taken, "are there"),
    (DECISIONS, _other_decision, "recomputed"),
]


@pytest.mark.parametrize(("topic", "wrong", "told"), WRONG, ids=[f"{topic}{wrong.__name__}" for topic, wrong, _ in WRONG])
def test_the_judge_complains_of_one_thing_wrong(topic: str, wrong: Callable[[Log], None], told: str) -> None:
    outcome, world = campaign(SEEDS[0])
    log = world.broker.logs[topic, 0]
    kept = list(log)
    try:
        wrong(log)
        assert any(told in complaint for complaint in judge(world, outcome.before))
    finally:
        log[:] = kept
    assert not judge(world, outcome.before)


def test_a_partition_that_decides_nothing_at_the_end_is_seen() -> None:
    outcome, world = campaign(SEEDS[0])
    journal = [orjson.loads(e.value or b"")["seq"] for e in world.broker.committed(DECISIONS, 1)]
    assert "partition 1: nothing was decided after the last fault" in judge(world, outcome.before | {1: max(journal)})
