"""A short, seeded campaign of kills over the whole real stack; the long one is `make chaos`.

Every part is killed with SIGKILL while the example job trains, in the middle of a commit too. The job must end with the weights of a run
that nobody disturbed, and the judge, who reads only topics, files, objects and SQL, must have nothing to complain about.
"""

from pathlib import Path

import pytest

from tests.chaos.campaign import run
from tests.chaos.faults import TARGETS, plan
from tests.chaos.start import started

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.timeout(900)]
SEED = 20261
STEPS = 300


def test_a_plan_comes_from_its_seed_and_names_every_target() -> None:
    first = plan(SEED, TARGETS, 10, STEPS, 14)
    assert first == plan(SEED, TARGETS, 10, STEPS, 14) != plan(SEED + 1, TARGETS, 10, STEPS, 14)
    faults = [fault for job in first for fault in job]
    assert all(sum(f.target == target for f in faults) == 10 for target in TARGETS)
    assert any(f.mid_commit for f in faults)


def test_every_part_is_killed_and_nothing_is_lost_doubled_or_invented(tmp_path: Path) -> None:
    with started(tmp_path / "data") as stack:
        verdict = run(stack, plan(SEED, TARGETS, 1, STEPS, 2), STEPS)
    told = "\n".join([f"seed {SEED}", *map(str, verdict.done), *verdict.complaints])
    assert not verdict.complaints, told
    assert len(verdict.done) == len(TARGETS), told
