"""Jobs that evaluate new versions as the gate says: submitted once, by an id that follows from the version; how they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.registry_requests import OF_MODEL, VALIDATION, Registry, content_of, evaluated, facts_of, observed
from trainhouse.events import (
    Event,
    JobSubmitted,
    ModelArchiveRequested,
    ModelDescribed,
    ModelEvaluationEnded,
    ModelEvaluationObserved,
    ModelEvaluationRecorded,
    ModelEvaluationRequested,
    ModelEvaluationStarted,
    ModelGate,
    ModelGateApplied,
    ModelRegistered,
    ModelRequestRefused,
    envelope_of,
)
from trainhouse.events.model.gate_evaluation import GateEvaluation
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import JOBS
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.registry.registry_machine import RegistryMachine
from trainhouse.scheduler.core.registry.registry_state import MAX_JOBS
from trainhouse.scheduler.core.registry.registry_view import RegistryView, why

EVALUATION: dict[str, Any] = {
    "suite": "accuracy",
    "kind": "classification",
    "dataset": VALIDATION,
    "split": "validation",
    "program": "digits",
    "seed": 7,
    "batch_size": 16,
    "device_type": "cpu",
    "pool": "small",
    "code": {"uri": "s3://b/code", "sha256": "d" * 64},
}
SUITE = {"suite": "accuracy", "metrics": {"top1": {"at_least": 0.5}}}


def gate(*evaluations: dict[str, Any], **changes: Any) -> ModelGate:
    return ModelGate.model_validate({"approvals": 0, "suites": [SUITE], "evaluate": evaluations} | changes)


def gated(*evaluations: dict[str, Any], machine: RegistryMachine | None = None) -> Registry:
    """A registry with a model whose gate has these evaluations, and no version."""
    registry = Registry(machine or RegistryMachine())
    registry.ask(ModelDescribed(**OF_MODEL, create=True))
    registry.ask(ModelGateApplied(**OF_MODEL, gate=gate(*(evaluations or (EVALUATION,)))))
    return registry


def started(decisions: Sequence[Event]) -> list[ModelEvaluationStarted]:
    return [each for each in decisions if isinstance(each, ModelEvaluationStarted)]


def ended(registry: Registry, job_id: str, **found: Any) -> list[Event]:
    """What follows from the end of a job."""
    return registry.ask(ModelEvaluationObserved.model_validate(OF_MODEL | {"version": 1, "job_id": job_id} | found))


def lacking(registry: Registry, version: int = 1) -> str:
    """Details of unmet conditions."""
    found = why(registry.model, registry.model.versions[version - 1], registry.now_ms)
    return "; ".join(each.detail for each in found if not each.met)


def test_a_registration_submits_the_job_that_the_gate_says() -> None:
    [job] = started(gated().register(1, user="mia"))
    spec = job.spec
    assert (spec.user, spec.project, spec.pool, spec.gang.ranks) == ("mia", "vision", "small", 1)
    assert (spec.resources.device_type, spec.seed, spec.limits.restarts) == ("cpu", 7, 0)
    assert spec.data is not None and (spec.data.dataset, spec.data.split) == (VALIDATION, "validation")
    assert spec.resume_from == "train-1@1" and spec.code is not None and spec.code.sha256 == "d" * 64
    assert content_of(1) in spec.runtime.command[-1] and '"batch_size":16' in spec.runtime.command[-1]
    assert job.job_id.startswith("evaluate-resnet-1-") and job.spec_sha256 == spec.sha256()
    [effect] = [each for each in RegistryMachine().effects(1, 0, [], [job]) if each.topic == JOBS]
    assert effect.key == job.job_id and effect.event == JobSubmitted(job_id=job.job_id, spec=spec)


def test_a_gate_without_evaluations_and_a_refused_registration_submit_nothing() -> None:
    registry = Registry()
    assert not started(registry.register(1))
    registry = gated()
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)), "r")
    assert not started(registry.ask(observed("r", None, refusal="gone")))


def test_two_registrations_that_are_alike_have_jobs_of_other_ids() -> None:
    registry = gated(EVALUATION, EVALUATION | {"suite": "speed", "kind": "latency"})
    jobs = [job.job_id for number in (1, 2) for job in started(registry.register(number))]
    assert len(set(jobs)) == 4


def test_a_version_that_the_gate_came_after_is_submitted_by_hand_as_its_registration_would_have() -> None:
    at_registration = started(gated().register(1))[0]
    registry = Registry()
    registry.register(1)
    registry.ask(ModelGateApplied(**OF_MODEL, gate=gate(EVALUATION)))
    [by_hand] = started(registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1", user="eve")))
    assert (by_hand.job_id, by_hand.spec) == (at_registration.job_id, at_registration.spec)
    [refused] = registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1"))
    assert isinstance(refused, ModelRequestRefused) and f"job {by_hand.job_id} evaluates it" in refused.reason


def test_what_the_gate_does_not_name_is_refused() -> None:
    registry = Registry()
    registry.register(1)
    [refused] = registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1"))
    assert isinstance(refused, ModelRequestRefused) and "names no evaluation: add it" in refused.reason
    registry.ask(ModelGateApplied(**OF_MODEL, gate=gate(EVALUATION)))
    [refused] = registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1", suite="other"))
    assert isinstance(refused, ModelRequestRefused) and "by suite other" in refused.reason


def test_a_result_of_the_job_counts_as_any_other_and_a_repeat_of_its_end_changes_nothing() -> None:
    registry = gated()
    [job] = started(registry.register(1))
    assert f"job {job.job_id} evaluates it" in lacking(registry)
    result = evaluated(1, 0.8, job_id=job.job_id)
    recorded, end = ended(registry, job.job_id, evaluated=result)
    assert isinstance(recorded, ModelEvaluationRecorded) and isinstance(end, ModelEvaluationEnded)
    assert end.evaluation_id == result.evaluation_id and not lacking(registry)
    assert ended(registry, job.job_id, evaluated=result) == [] and not registry.state.running
    [refused] = registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1"))
    assert isinstance(refused, ModelRequestRefused) and "has evaluated it so" in refused.reason
    assert len(registry.promote(1)) == 2


def test_of_a_suite_that_jobs_evaluate_no_other_result_counts_at_the_gate() -> None:
    registry = gated()
    [job] = started(registry.register(1))
    registry.evaluate(1, 0.9)
    assert "of a job" in lacking(registry)
    ended(registry, job.job_id, evaluated=evaluated(1, 0.1, job_id=job.job_id))
    assert "0.1, and at least 0.5" in lacking(registry)
    registry.evaluate(1, 0.99, evaluation_id="another")
    assert "0.1, and at least 0.5" in lacking(registry), "a newer one that somebody sent"


def test_the_result_of_the_job_stands_in_place_of_one_that_was_sent_under_its_name_before() -> None:
    registry = gated()
    [job] = started(registry.register(1))
    true = evaluated(1, 0.1, job_id=job.job_id)
    registry.ask(evaluated(1, 0.99, evaluation_id=true.evaluation_id, document=true.document, user="mallory"))
    recorded, end = ended(registry, job.job_id, evaluated=true)
    assert isinstance(recorded, ModelEvaluationRecorded) and isinstance(end, ModelEvaluationEnded) and end.evaluation_id
    assert registry.model.versions[0].evaluations == (true,) and "0.1, and at least 0.5" in lacking(registry)


def test_nobody_else_sends_a_result_in_the_name_of_the_job() -> None:
    registry = gated()
    [job] = started(registry.register(1))
    [refused] = registry.ask(evaluated(1, 0.99, job_id=job.job_id))
    assert isinstance(refused, ModelRequestRefused) and f"job {job.job_id}" in refused.reason and "once it has ended" in refused.reason


@pytest.mark.parametrize("is_before", [True, False])
def test_results_of_others_push_out_none_of_a_job(is_before: bool) -> None:
    registry = gated()
    [job] = started(registry.register(1))
    true = evaluated(1, 0.8, job_id=job.job_id, evaluated_at_ms=registry.now_ms)

    def others() -> None:
        for number in range(6):
            registry.ask(evaluated(1, 0.99, evaluation_id=f"other-{number}", evaluated_at_ms=registry.now_ms + 1 + number))

    if is_before:
        others()
    ended(registry, job.job_id, evaluated=true)
    if not is_before:
        others()
    assert not lacking(registry) and len(registry.model.versions[0].evaluations) == 5


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"failure": "it is REJECTED: pool small is unknown"}, "pool small is unknown"),
        ({}, "it left no result"),
        ({"evaluated": {"split": "train"}}, "split train, and the gate's evaluation is on"),
        ({"evaluated": {"dataset": "other@sha256:" + "c" * 64}}, "on other@sha256:cc"),
        ({"evaluated": {"suite": "speed"}}, "which it was not to evaluate"),
        ({"evaluated": {"content": content_of(2)}}, "which it was not to evaluate"),
        ({"evaluated": {"metrics": {"top1": {"value": float("nan")}}}}, "no finite number"),
    ],
)
def test_a_job_without_a_result_says_so_with_its_id_and_another_may_be_started(found: dict[str, Any], reason: str) -> None:
    registry = gated()
    [job] = started(registry.register(1))
    if "evaluated" in found:
        found = {"evaluated": evaluated(1, 0.8, **found["evaluated"])}
    [end] = ended(registry, job.job_id, **found)
    assert isinstance(end, ModelEvaluationEnded) and reason in end.reason
    assert job.job_id in lacking(registry) and reason in lacking(registry) and "--submit" in lacking(registry)
    [again] = started(registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1")))
    assert again.attempt == 2 and again.job_id != job.job_id and again.spec == job.spec


def test_a_long_reason_is_cut_and_has_no_control_characters() -> None:
    registry = gated()
    [job] = started(registry.register(1))
    [end] = ended(registry, job.job_id, failure="it is FAILED: \x01\n\x9f" + "\U0010ffff" * 60_000)
    assert isinstance(end, ModelEvaluationEnded) and end.reason.startswith("it is FAILED:    \U0010ffff") and len(end.reason) == 1024
    assert end.reason.endswith("…") and len(encode(envelope_of(end, id="x", source="tests", now_ms=1))) < 8_192


def test_a_failure_where_no_result_is_lacking_is_said_and_keeps_up_nothing() -> None:
    registry = gated()
    [job] = started(registry.register(1))
    ended(registry, job.job_id, evaluated=evaluated(1, 0.8, job_id=job.job_id))
    registry.ask(ModelGateApplied(**OF_MODEL, gate=gate(EVALUATION | {"seed": 8})))
    [again] = started(registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1")))
    ended(registry, again.job_id, failure="it is FAILED: out of memory")
    found = why(registry.model, registry.model.versions[0], registry.now_ms)
    assert any(again.job_id in each.detail and "out of memory" in each.detail and each.met for each in found)
    assert len(registry.promote(1)) == 2


def test_a_tag_of_a_dataset_is_any_version_of_it() -> None:
    registry = gated(EVALUATION | {"dataset": "imagenet@1.0.0"})
    [job] = started(registry.register(1))
    ended(registry, job.job_id, evaluated=evaluated(1, 0.8, job_id=job.job_id))
    assert not lacking(registry)


def test_a_job_of_a_version_of_files_alone_names_no_checkpoint() -> None:
    registry = gated()
    [job] = started(registry.register(1, job_id="m-abc", commit=0))
    assert job.spec.resume_from is None


def test_an_archived_version_starts_no_job() -> None:
    registry = gated()
    [job] = started(registry.register(1))
    ended(registry, job.job_id, failure="it is FAILED")
    registry.ask(ModelArchiveRequested(**OF_MODEL, version="1", user="eve"))
    [refused] = registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1"))
    assert isinstance(refused, ModelRequestRefused) and "is archived" in refused.reason


def test_a_split_that_was_trained_on_starts_no_job() -> None:
    registry = gated(EVALUATION | {"split": "train"})
    assert not started(registry.register(1))
    [refused] = registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1"))
    assert isinstance(refused, ModelRequestRefused) and "was trained on" in refused.reason


def test_the_end_of_another_job_or_of_another_models_version_changes_nothing() -> None:
    registry = gated()
    [job] = started(registry.register(1))
    assert ended(registry, "evaluate-resnet-1-else", failure="x") == []
    assert ended(registry, job.job_id, failure="x", version=2) == []
    assert ended(registry, job.job_id, failure="x", name="other") == []
    assert registry.state.running


def test_an_older_level_starts_nothing_and_takes_no_such_gate() -> None:
    registry = Registry(RegistryMachine().at(2))
    registry.register(1)
    [refused] = registry.ask(ModelGateApplied(**OF_MODEL, gate=gate(EVALUATION)))
    assert isinstance(refused, ModelRequestRefused) and "from level 3" in refused.reason
    assert not started(registry.register(2))


def test_a_snapshot_keeps_jobs_and_readers_of_the_history_have_them() -> None:
    registry = gated()
    [first] = started(registry.register(1))
    ended(registry, first.job_id, failure="it is FAILED")
    registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1"))
    loaded = registry.machine.load(registry.machine.dump(registry.state))
    assert loaded.models == registry.state.models and loaded.running == registry.state.running and len(loaded.running) == 1
    view = RegistryView.of(registry.decisions).find("vision", "resnet")
    assert view is not None and view.versions == registry.model.versions


def test_of_many_tries_the_newest_are_kept_and_ids_are_not_used_twice() -> None:
    registry = gated()
    ids = [started(registry.register(1))[0].job_id]
    for _ in range(MAX_JOBS + 3):
        ended(registry, ids[-1], failure="it is FAILED")
        ids += [job.job_id for job in started(registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1")))]
    assert len(set(ids)) == MAX_JOBS + 4 and len(registry.model.versions[0].jobs) == MAX_JOBS


def test_an_id_is_not_used_twice_where_all_tries_of_a_suite_were_dropped() -> None:
    registry = gated(EVALUATION, EVALUATION | {"suite": "speed", "kind": "latency"})
    first, last = started(registry.register(1))
    ended(registry, first.job_id, failure="it is FAILED")
    for _ in range(MAX_JOBS + 1):
        ended(registry, last.job_id, failure="it is FAILED")
        [last] = started(registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1", suite="speed")))
    assert {job.suite for job in registry.model.versions[0].jobs} == {"speed"}
    [again] = started(registry.ask(ModelEvaluationRequested(**OF_MODEL, version="1", suite="accuracy")))
    assert again.job_id != first.job_id and again.attempt == MAX_JOBS + 4


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["register", "store", "end", "submit"]), st.integers(1, 3), st.booleans()), max_size=25))
def test_law_however_often_and_in_whatever_order_it_is_asked_a_try_is_one_job(steps: list[tuple[str, int, bool]]) -> None:
    registry, submitted = gated(), dict[str, Any]()
    for name, number, flag in steps:
        before = {version.version for version in registry.model.versions}
        if name == "register":
            decided = registry.ask(ModelRegistered(**OF_MODEL, content=content_of(number)), f"r{number}")
        elif name == "store":
            decided = registry.ask(observed(f"r{number}", facts_of(number) if flag else None, refusal="" if flag else "gone"))
        elif name == "submit":
            decided = registry.ask(ModelEvaluationRequested(**OF_MODEL, version=str(number)), f"s{number}" if flag else "")
        else:
            running = [each for each in registry.state.running.values() if each.version == number]
            job_id = running[0].job.job_id if running else "evaluate-none"
            content = registry.model.versions[number - 1].facts.content if running else content_of(1)
            found = {"evaluated": evaluated(number, 0.8, content=content)} if flag else {"failure": "it is FAILED"}
            decided = ended(registry, job_id, version=number, **found)
        made = {version.version for version in registry.model.versions} - before
        assert {job.version for job in started(decided)} >= made, "each new version has its job"
        for job in started(decided):
            assert job.job_id not in submitted, "no id is submitted twice"
            submitted[job.job_id] = job
        running_of = [(each.version, each.job.suite) for each in registry.state.running.values()]
        assert len(running_of) == len(set(running_of)), "one at a time"
        assert registry.machine.load(registry.machine.dump(registry.state)).running == registry.state.running


def test_a_killed_owner_decides_the_same_job_again() -> None:
    """What was decided and not appended is decided again by the next owner, from the same state."""
    registry = gated()
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)), "r")
    item = [Input(9, envelope_of(observed("r", facts_of(1)), id="o", source="tests", now_ms=registry.now_ms))]
    first = registry.machine.decide(registry.state, registry.now_ms, item)
    other = RegistryMachine().load(registry.machine.dump(registry.state))
    assert RegistryMachine().decide(other, registry.now_ms, item) == first and started(first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "command"}, "needs `command`"),
        ({"program": None}, "needs `program`"),
        ({"split": None}, "held-out"),
        ({"dataset": None}, "`dataset` and `split`"),
        ({"model": "../x"}, "below the version's files"),
        ({"program": "a b"}, "no Python module"),
        ({"format": "pickle"}, "format"),
        ({"ranks": 2}, "ranks"),
    ],
)
def test_what_is_no_evaluation_is_refused_with_what_to_write(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GateEvaluation.model_validate(EVALUATION | changes)
    with pytest.raises(ValueError, match="evaluate: accuracy is named twice"):
        gate(EVALUATION, EVALUATION)
