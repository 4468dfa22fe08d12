"""A short, seeded campaign of faults over the whole real stack; the long one is `make chaos`.

Kills, a pause, a partition and a clock jump while the example job trains beside other jobs. It must end with the weights of a run that
nobody disturbed, and the judge, who reads only topics, objects, the ranks' files and SQL, must have nothing to complain about.
"""

import pytest

from tests.chaos.campaign import run
from tests.chaos.faults import TARGETS, Kind, mixed, plan
from tests.chaos.stack import ChaosStack

pytestmark = [pytest.mark.stack, pytest.mark.chaos]
SEED = 20261
STEPS = 160
LONGEST_S = 4.0
SHORT = [
    (Kind.KILL, "rank"),
    (Kind.KILL, "scheduler"),
    (Kind.KILL, "kafka"),
    (Kind.PAUSE, "agent"),
    (Kind.PARTITION, "beside"),
    (Kind.CLOCK, "standby"),
    (Kind.KILL, "store"),
]


def test_a_plan_comes_from_its_seed_and_has_every_kind_and_target() -> None:
    whats = mixed(SEED, 100)
    first = plan(SEED, whats, STEPS, 14)
    assert first == plan(SEED, whats, STEPS, 14) != plan(SEED + 1, whats, STEPS, 14)
    faults = [fault for job in first for fault in job]
    assert len(faults) == 100 and {(f.kind, f.target) for f in faults} == {(kind, target) for kind in Kind for target in TARGETS[kind]}
    assert any(f.mid_commit for f in faults) and all((f.lasts_s > 0) is (f.kind not in (Kind.KILL, Kind.EXTREMES)) for f in faults)
    assert max(f.lasts_s for f in faults) > 20
    jumps_s = {f.jump_s for f in faults if f.kind is Kind.CLOCK}
    assert {-86_400, -3_600, 3_600, 86_400} < jumps_s and not any(f.jump_s for f in faults if f.kind is not Kind.CLOCK)


def test_after_faults_of_many_kinds_nothing_is_lost_doubled_or_invented(two_nodes: ChaosStack) -> None:
    verdict = run(two_nodes, plan(SEED, SHORT, STEPS, 1, LONGEST_S), STEPS)
    told = "\n".join([f"seed {SEED}", *map(str, verdict.done), *verdict.complaints])
    assert not verdict.complaints, told
    assert {done.fault.kind for done in verdict.done} >= {Kind.KILL, Kind.PAUSE, Kind.PARTITION}, told
