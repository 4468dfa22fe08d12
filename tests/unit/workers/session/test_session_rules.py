"""The session's pure parts: when to save, what a request asks, where a rank stands, how progress is told."""

import json
import os
from pathlib import Path

import pytest

from trainhouse.checkpointing.interval import Measured
from trainhouse.events import Divergence, JobSpec
from trainhouse.events.model.spec import CheckpointPolicy, Runtime
from trainhouse.workers.session import Context
from trainhouse.workers.session.step_schedule import MAX_STRIDE, Wishes, interval_s, save_by_step, stride_for
from trainhouse.workers.session.steps.agent_requests import RequestFile
from trainhouse.workers.session.steps.progress import Progress


def test_steps_of_the_policy() -> None:
    policy = CheckpointPolicy(every_steps=10)
    assert [s for s in range(31) if save_by_step(policy, s)] == [10, 20, 30]
    assert not any(save_by_step(CheckpointPolicy(every_s=1.0), s) for s in range(31))


def test_interval_by_the_clock() -> None:
    assert interval_s(CheckpointPolicy(every_s=7.0), Measured()) == 7.0
    bounds = CheckpointPolicy(min_interval_s=20, max_interval_s=600)
    cheap, dear = Measured(save_cost_s=1e-6), Measured(save_cost_s=1000.0)
    assert interval_s(bounds, cheap) == 20 and interval_s(bounds, dear) == 600
    between = interval_s(bounds, Measured(save_cost_s=1.0))
    assert between is not None and 20 < between < 600


def test_the_stride_is_bounded_and_shrinks_with_slow_steps() -> None:
    assert stride_for(10.0) == 1
    assert stride_for(0.0) == 1
    assert 2 <= stride_for(0.1) <= 3
    assert stride_for(1e-9) == MAX_STRIDE


def test_wishes_survive_the_numbers() -> None:
    known = Wishes(proved=True, doubted=True, diverged=0, work_ms=0.25)
    for wishes in (Wishes(), Wishes(save=True, stride=7), Wishes(stop=True, stride=MAX_STRIDE), known, Wishes(diverged=5)):
        assert Wishes.of(list(wishes.numbers())) == wishes


def test_of_many_the_first_that_diverged_and_the_fastest_count() -> None:
    ranks = [Wishes(work_ms=3.5), Wishes(diverged=3, work_ms=1.25), Wishes(diverged=1), Wishes(save=True, proved=True)]
    joined = Wishes.of([max(column) for column in zip(*(r.numbers() for r in ranks), strict=True)])
    assert joined == Wishes(save=True, proved=True, diverged=1, work_ms=1.25)


class TestRequests:
    """`request.json`, as the agent writes it."""

    def write(self, path: Path, **fields: object) -> None:
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps({"id": "r1", "kind": "checkpoint", "reason": "", "deadline_ms": 1000, "then_stop": False} | fields))
        os.replace(scratch, path)

    def test_is_pending_until_answered_once(self, tmp_path: Path) -> None:
        path = tmp_path / "request.json"
        requests = RequestFile(path)
        assert requests.pending() is None
        self.write(path)
        found = requests.pending()
        assert found is not None and found.id == "r1" and requests.pending() == found
        requests.answered()
        assert requests.pending() is None
        self.write(path)  # the same one again, as after a restart of the agent
        assert requests.pending() is None
        self.write(path, id="r2", then_stop=True)
        again = requests.pending()
        assert again is not None and again.then_stop

    def test_a_passed_deadline_no_longer_asks_for_a_save(self, tmp_path: Path) -> None:
        path = tmp_path / "request.json"
        self.write(path)
        found = RequestFile(path).pending()
        assert found is not None and found.wants_save(999, 0.0) and not found.wants_save(1000, 0.0)

    def test_a_deadline_by_the_steady_clock_outlives_a_wall_clock_that_is_set(self, tmp_path: Path) -> None:
        path = tmp_path / "request.json"
        self.write(path, deadline_steady_s=50.0)
        found = RequestFile(path).pending()
        assert found is not None and found.wants_save(1000 + 3_600_000, 49.9) and not found.wants_save(0, 50.0)

    def test_other_kinds_are_not_ours(self, tmp_path: Path) -> None:
        path = tmp_path / "request.json"
        self.write(path, kind="something-newer")
        assert RequestFile(path).pending() is None

    def test_without_an_agent_nothing_is_asked(self) -> None:
        assert RequestFile(None).pending() is None


class TestContext:
    """What the environment says."""

    def test_nothing_at_all(self) -> None:
        context = Context.from_env({})
        assert (context.rank, context.world_size, context.job_id, context.spool) == (0, 1, None, None)

    def test_torchrun_alone_with_a_folder_for_metrics(self, tmp_path: Path) -> None:
        context = Context.from_env({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TRAINHOUSE_RUN_DIR": str(tmp_path)})
        assert (context.rank, context.world_size, context.job_id) == (1, 2, None)
        assert context.spool == tmp_path / "rank-1" / "spool.jsonl" and context.spool.parent.is_dir()

    def test_a_job(self, tmp_path: Path) -> None:
        spec = JobSpec(runtime=Runtime(command=("python",)), seed=9, hyperparameters={"lr": 0.1}, resume_from="other@step:4")
        (tmp_path / "spec.json").write_bytes(spec.canonical_json())
        environ = {
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "TRAINHOUSE_JOB_ID": "j",
            "TRAINHOUSE_ATTEMPT": "2",
            "TRAINHOUSE_EPOCH": "5",
            "TRAINHOUSE_SPEC_SHA256": spec.sha256(),
            "TRAINHOUSE_ATTEMPT_DIR": str(tmp_path),
            "TRAINHOUSE_RANK_DIR": str(tmp_path / "rank-3"),
            "TRAINHOUSE_BACKEND": "gloo",
        }
        context = Context.from_env(environ)
        assert (context.job_id, context.attempt, context.epoch, context.seed) == ("j", 2, 5, 9)
        assert context.hyperparameters == {"lr": 0.1} and context.resume_from == "other@step:4"
        assert context.divergence == Divergence() and context.restore_at_most is None and context.alike
        assert Context.from_env(environ | {"TRAINHOUSE_RESTORE_AT_MOST": "0"}).restore_at_most == 0
        assert context.request == tmp_path / "request.json" and context.spool == tmp_path / "rank-3" / "spool.jsonl"


class TestProgress:
    """Steps cost no report but the first, which comes at once: the pulse tells of the others."""

    def test_only_the_first_step_reports_by_itself(self) -> None:
        written: list[dict[str, object]] = []
        life: list[dict[str, object]] = []
        progress = Progress(0, lambda fields: written.append(dict(fields)), lambda fields: life.append(dict(fields)))
        progress.report(-1.0, 0)
        assert [(w["activity"], w["step"]) for w in life] == [("STARTING", 0)] and written == []
        progress.begin(0, 1000, now=0.0, now_ms=0)
        for step in range(1, 1001):
            progress.stepped(step, step * 0.01, step * 10)
            progress.tick(step * 0.01, step * 10)
        progress.report(20.0, 20_000)
        assert [(w["step"], w["step_at_ms"]) for w in written] == [(0, 0), (1, 10), (1000, 10_000)]
        assert all(abs(float(w["steps_per_s"]) - 100) < 1e-6 for w in written[1:])  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", ["learning_rate", "lr"])
    def test_both_names_of_the_learning_rate(self, name: str) -> None:
        written: list[dict[str, object]] = []
        progress = Progress(0, lambda fields: written.append(dict(fields)))
        progress.fresh[name] = 0.25
        progress.begin(1, None, 0.0, 0)
        assert written[0]["learning_rate"] == 0.25
