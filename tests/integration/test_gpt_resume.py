"""The example program, killed and resumed: it ends with the weights of a run that nobody killed, bit for bit."""

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.session_support import GPT, SMALL, JobRun
from tests.support.waiting import until
from trainhouse.workers.launcher import Launcher, read_exit

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

STEPS = 30
COMMAND = (*GPT, *SMALL, "--steps", str(STEPS), "--checkpoint-every", "4")
KILLS = 4


def finished(run: JobRun) -> str:
    """Wait for both ranks, and the hash of the final weights."""
    records = [run.exit_of(r, 120) for r in (0, 1)]
    assert [r.exit_code for r in records] == [0, 0], run.stderr(0) + run.stderr(1)
    return run.weights()


def kill_at(run: JobRun, rng: random.Random, mid_commit: bool) -> None:
    """Wait for a seeded instant of this attempt, then SIGKILL all of it: at a step, or while a checkpoint is being written."""
    if mid_commit:
        until(lambda: len(run.events("CheckpointStarted")) >= 2 or read_exit(run.paths.rank(0)), every_s=0.01)
        time.sleep(rng.uniform(0, 0.08))
    else:
        steps = rng.randint(5, 8)
        until(lambda: len(run.losses()) >= steps or read_exit(run.paths.rank(0)), every_s=0.01)
    assert read_exit(run.paths.rank(0)) is None, run.stderr()
    run.end()


@pytest.mark.stack
def test_killed_at_any_instant_it_ends_with_the_same_weights(
    launcher: Launcher, object_store_endpoint: "StoreServer", tmp_path: Path
) -> None:
    seed = 20240917
    rng = random.Random(seed)
    calm = JobRun(tmp_path / "calm", f"calm-{seed}", 0, COMMAND, 2, object_store_endpoint, seed=7).start(launcher)
    expected = finished(calm)
    expected_losses = calm.losses()
    calm.end()
    assert sorted(expected_losses) == list(range(STEPS))

    begun_at: list[int] = []
    for epoch in range(KILLS + 1):
        run = JobRun(tmp_path / "killed", f"killed-{seed}", epoch, COMMAND, 2, object_store_endpoint, seed=7).start(launcher)
        try:
            if epoch < KILLS:
                kill_at(run, rng, mid_commit=epoch % 2 == 1)
            else:
                assert finished(run) == expected
        finally:
            run.end()
        losses = run.losses()
        begun_at.append(min(losses, default=STEPS))  # none: the last kill came after the last checkpoint
        assert losses.items() <= expected_losses.items()  # every step, done again or not, gave the very same loss
    assert begun_at == sorted(begun_at) and begun_at[-1] > begun_at[0], f"nothing was resumed: attempts began at {begun_at}"
    assert all(begun % 4 == 0 or begun == STEPS for begun in begun_at)


LAID_OUT = (*GPT, *SMALL, "--layers", "2", "--steps", "10", "--checkpoint-every", "2")


def ended(run: JobRun, ranks: int) -> str:
    """Waits for all ranks, and returns the hash of the final weights."""
    records = [run.exit_of(r, 240) for r in range(ranks)]
    assert [r.exit_code for r in records] == [0] * ranks, [run.stderr(r) for r in range(ranks)]
    return run.weights()


@pytest.mark.stack
def test_a_gang_laid_out_by_its_spec_resumes_bit_for_bit_and_on_fewer_ranks(
    launcher: Launcher, object_store_endpoint: "StoreServer", tmp_path: Path
) -> None:
    spec = {"seed": 7, "gang": {"ranks": 4, "min_ranks": 2}, "parallelism": {"dp": 2, "pp": 2, "schedule": "GPipe"}}

    def begun(name: str, epoch: int, ranks: int) -> JobRun:
        run = JobRun(tmp_path / name, f"{name}-{tmp_path.name}", epoch, LAID_OUT, ranks, object_store_endpoint, **spec)
        return run.start(launcher)

    calm = begun("calm", 0, 4)
    expected, losses = ended(calm, 4), calm.losses()
    calm.end()
    killed = begun("killed", 0, 4)
    try:
        until(lambda: killed.events("CheckpointCompleted") or read_exit(killed.paths.rank(0)), every_s=0.01)
        assert read_exit(killed.paths.rank(0)) is None, killed.stderr()
    finally:
        killed.end()
    again = begun("killed", 1, 4)
    assert ended(again, 4) == expected
    again.end()
    assert losses.items() >= again.losses().items() and min(again.losses()) >= 2
    fewer = begun("calm", 1, 2)
    assert ended(fewer, 2) == expected, "all steps were done: it only restores, as one pipeline"
    fewer.end()
