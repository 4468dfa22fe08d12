"""Rules of the registry of models: versions, semver, the gate, approvals, rollback, and what is refused with what to do."""

from __future__ import annotations

import pytest

from tests.support.registry_requests import OF_MODEL, VALIDATION, Registry, compared, content_of, facts_of, observed
from trainhouse.events import (
    ModelArchived,
    ModelArchiveRequested,
    ModelDescribed,
    ModelEmergencyReview,
    ModelEvaluationRecorded,
    ModelGate,
    ModelGateApplied,
    ModelPromoted,
    ModelRegistered,
    ModelRejected,
    ModelRequestRefused,
    ModelRollbackRequested,
    ModelRolledBack,
    ModelStage,
    ModelStageStored,
    ModelStatus,
    ModelVersionRegistered,
    RequestedBy,
)
from trainhouse.events.model.asked import AskedVia
from trainhouse.events.model.model_gate import MOST_CONDITIONS
from trainhouse.scheduler.core.registry.registry_fold import fold_registry

DAY_MS = 86_400_000


def refusal(decisions: list[object]) -> str:
    """The reason of a refusal, which is all that came of a request."""
    (refused,) = decisions
    assert isinstance(refused, ModelRequestRefused), refused
    return refused.reason


def with_versions(count: int, **changes: object) -> Registry:
    """A registry with so many versions of one model."""
    registry = Registry()
    for number in range(1, count + 1):
        registry.register(number, **changes)
    return registry


def gate(registry: Registry, **fields: object) -> None:
    """Applies a gate."""
    registry.ask(ModelGateApplied(**OF_MODEL, gate=ModelGate.model_validate(fields), user="ada"))


def test_a_version_is_there_once_its_content_was_found_in_the_store() -> None:
    registry = Registry()
    (held,) = registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1), user="ada"), "r1")
    assert held.event_type.endswith("registration-held.v1") and not registry.model.versions
    registered, status = registry.ask(observed("r1", facts_of(1)))
    assert isinstance(registered, ModelVersionRegistered) and (registered.version, registered.semver) == (1, "1.0.0")
    assert isinstance(status, ModelStatus) and status.champion is None and status.versions[0].stage is ModelStage.STAGING
    assert registry.ask(observed("r1", facts_of(1))) == [], "what was found twice counts once"


def test_a_repeat_of_a_request_does_nothing() -> None:
    registry = with_versions(1)
    first = registry.ask(ModelArchiveRequested(**OF_MODEL, version="1", user="ada"), "once")
    assert len(first) == 2
    assert registry.ask(ModelArchiveRequested(**OF_MODEL, version="1", user="ada"), "once") == []


def test_content_that_is_not_in_the_store_is_refused_and_so_is_no_answer_in_time() -> None:
    registry = Registry()
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)), "r1")
    missing = observed("r1", None, refusal="commit 3 of job x is damaged: choose another")
    assert refusal(registry.ask(missing)) == missing.refusal
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(2)), "r2")
    due_ms = registry.machine.wakes_ms(registry.state, registry.now_ms)
    assert due_ms is not None
    registry.now_ms = due_ms
    assert "ask again" in refusal(registry.tick())
    assert not registry.state.held


def test_another_projects_job_is_refused() -> None:
    registry = Registry()
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)), "r1")
    found = observed("r1", facts_of(1, project="speech"))
    assert "register it as speech/resnet" in refusal(registry.ask(found))


def test_the_same_content_is_one_version() -> None:
    registry = with_versions(1)
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)), "again")
    assert "is version 1 (1.0.0)" in refusal(registry.ask(observed("again", facts_of(1))))


@pytest.mark.parametrize(
    ("changes", "bump", "semver"),
    [
        ({}, None, "1.0.1"),
        ({"data": ("other@sha256:" + "d" * 64,)}, None, "1.1.0"),
        ({"code_sha256": "e" * 64}, None, "1.1.0"),
        ({"schema_sha256": "e" * 64}, None, "2.0.0"),
        ({}, "minor", "1.1.0"),
        ({"schema_sha256": None}, "patch", "2.0.0"),
    ],
)
def test_semver_follows_from_facts_and_a_bump_only_raises_it(changes: dict[str, object], bump: str | None, semver: str) -> None:
    registry = with_versions(1)
    registered = registry.register(2, bump=bump, **changes)[0]
    assert isinstance(registered, ModelVersionRegistered) and registered.semver == semver


def test_without_an_approval_the_default_gate_refuses_and_says_what_it_lacks() -> None:
    registry = with_versions(1)
    assert "0 of 1 approvals" in refusal(registry.promote(1))
    registry.approve(1, "bob")
    promoted, status = registry.promote(1)
    assert isinstance(promoted, ModelPromoted) and promoted.approvers == ("bob",) and promoted.previous is None
    assert isinstance(status, ModelStatus) and status.champion is not None and status.champion.version == 1


def test_nobody_approves_what_they_trained_or_registered() -> None:
    registry = Registry()
    registry.register(1, user="eve", trained_by="ada")
    assert "ada trained version 1" in refusal(registry.approve(1, "ada"))
    assert "eve registered version 1" in refusal(registry.approve(1, "eve"))
    assert "name the user" in refusal(registry.approve(1, "unknown"))


@pytest.mark.parametrize("trained_by", ["", "unknown"])
def test_nobody_approves_a_version_of_which_the_trainer_is_not_known(trained_by: str) -> None:
    registry = Registry()
    registry.register(1, user="svc", trained_by=trained_by)
    assert "who trained version 1" in refusal(registry.approve(1, "bob"))
    assert not isinstance(registry.ask(ModelRejected(**OF_MODEL, version="1", user="bob"))[0], ModelRequestRefused)
    assert isinstance(registry.promote(1, emergency=True, reason="down")[0], ModelPromoted), "an emergency needs no approval"


def test_two_approvals_are_two_people() -> None:
    registry = with_versions(1)
    gate(registry, approvals=2)
    registry.approve(1, "bob")
    registry.approve(1, "bob")
    assert "1 of 2 approvals" in refusal(registry.promote(1))
    registry.approve(1, "eve")
    assert isinstance(registry.promote(1)[0], ModelPromoted)


def test_a_gateway_vouches_for_the_role() -> None:
    registry = with_versions(1)
    submitter = RequestedBy(name="bob", via=AskedVia.GATEWAY, role="submitter")
    assert "needs role approver" in refusal(registry.approve(1, "bob", requested_by=submitter))
    approver = RequestedBy(name="ada", via=AskedVia.GATEWAY, role="approver")
    assert "ada trained" in refusal(registry.approve(1, "somebody", requested_by=approver)), "the name that is vouched for counts"


def test_a_rejection_holds_until_that_person_approves() -> None:
    registry = with_versions(1)
    registry.approve(1, "bob")
    registry.ask(ModelRejected(**OF_MODEL, version="1", user="eve", reason="worse at night"))
    assert "rejected by eve" in refusal(registry.promote(1))
    registry.approve(1, "eve")
    assert isinstance(registry.promote(1)[0], ModelPromoted)


def test_new_evidence_voids_approvals_and_stale_evidence_is_no_ground_to_approve() -> None:
    registry = with_versions(1)
    looked_at = registry.model.versions[0].evidence
    registry.approve(1, "bob", evidence=looked_at)
    (recorded,) = registry.evaluate(1)
    assert isinstance(recorded, ModelEvaluationRecorded) and recorded.voided == ("bob",)
    assert "0 of 1 approvals" in refusal(registry.promote(1))
    assert "other evidence" in refusal(registry.approve(1, "bob", evidence=looked_at))


def test_limits_of_metrics_age_and_lineage() -> None:
    registry = Registry()
    registry.register(1, missing=("licence",))
    suite = {"suite": "accuracy", "metrics": {"top1": {"at_least": 0.7}}}
    gate(registry, approvals=0, suites=(suite,), max_age_days=30, complete_lineage=True)
    assert "no result of suite accuracy" in refusal(registry.promote(1))
    registry.evaluate(1, 0.6)
    refused = refusal(registry.promote(1))
    assert "top1 is 0.6, and at least 0.7" in refused and "licence" in refused
    gate(registry, approvals=0, suites=(suite,), max_age_days=30)
    registry.now_ms += DAY_MS
    registry.evaluate(1, 0.8)
    registry.now_ms += 31 * DAY_MS
    assert "31 days old" in refusal(registry.promote(1))
    registry.evaluate(1, 0.9)
    (promoted, _) = registry.promote(1)
    assert isinstance(promoted, ModelPromoted)
    found = {each.name: each for each in promoted.conditions}
    assert (found["accuracy/top1 at least"].value, found["accuracy/top1 at least"].limit) == (0.9, 0.7)
    assert [each.evaluation_id for each in promoted.evaluations] == ["evaluation-1-0.6", "evaluation-1-0.8", "evaluation-1-0.9"]


@pytest.mark.parametrize(
    ("verdict", "needed", "passes"),
    [
        ("better", "better", True),
        ("not worse", "better", False),
        ("not worse", "not worse", True),
        ("worse", "not worse", False),
        ("too few samples", "not worse", False),
    ],
)
def test_a_comparison_with_the_champion_of_now(verdict: str, needed: str, passes: bool) -> None:
    registry = with_versions(2)
    suite = {"suite": "accuracy", "metrics": {"top1": {"against_champion": needed}}}
    gate(registry, approvals=0, suites=(suite,))
    registry.evaluate(1)
    registry.evaluate(2, 0.81)
    assert isinstance(registry.promote(1)[0], ModelPromoted), "there is no champion to compare with"
    assert "compare them" in refusal(registry.promote(2))
    registry.ask(compared(2, 1, verdict, "evaluation-2-0.81", "evaluation-1-0.8", registry.now_ms))
    first = registry.promote(2)[0]
    assert isinstance(first, ModelPromoted if passes else ModelRequestRefused)


@pytest.mark.parametrize(
    ("margin", "allowed", "passes"),
    [(0.005, 0.005, True), (0.05, 0.005, False), (0.01, None, False), (0.0, None, True), (None, 0.005, False)],
)
def test_not_worse_counts_within_the_margin_of_the_gate(margin: float | None, allowed: float | None, passes: bool) -> None:
    registry = with_versions(2)
    suite = {"suite": "accuracy", "metrics": {"top1": {"against_champion": "not worse", "margin": allowed}}}
    gate(registry, approvals=0, suites=(suite,))
    registry.evaluate(1)
    registry.evaluate(2, 0.81)
    registry.promote(1)
    registry.ask(compared(2, 1, "not worse", "evaluation-2-0.81", "evaluation-1-0.8", registry.now_ms, margin))
    decided = registry.promote(2)
    assert isinstance(decided[0], ModelPromoted) if passes else "compare them with a margin of" in refusal(decided)


def test_a_comparison_counts_of_the_result_that_the_gate_looks_at_alone() -> None:
    registry = with_versions(2)
    suite = {"suite": "accuracy", "dataset": VALIDATION, "metrics": {"top1": {"against_champion": "better"}}}
    gate(registry, approvals=0, suites=(suite,))
    for number in (1, 2):
        registry.evaluate(number, dataset="other@sha256:" + "d" * 64, evaluation_id=f"easy-{number}")
        registry.evaluate(number)
    registry.promote(1)
    registry.ask(compared(2, 1, "better", "easy-2", "easy-1", registry.now_ms))
    assert "evaluation-2-0.8 was not compared with" in refusal(registry.promote(2))
    registry.ask(compared(2, 1, "better", "evaluation-2-0.8", "evaluation-1-0.8", registry.now_ms))
    registry.now_ms += 1000
    registry.evaluate(2, 0.7)
    assert "evaluation-2-0.7 was not compared with" in refusal(registry.promote(2))
    registry.ask(compared(2, 1, "better", "evaluation-2-0.7", "evaluation-1-0.8", registry.now_ms))
    assert isinstance(registry.promote(2)[0], ModelPromoted)


def test_a_comparison_of_results_on_different_data_is_refused() -> None:
    registry = with_versions(2)
    registry.evaluate(1)
    registry.evaluate(2, split="test")
    refused = refusal(registry.ask(compared(2, 1, "better", "evaluation-2-0.8", "evaluation-1-0.8", registry.now_ms)))
    assert "split test" in refused and "split validation" in refused and "same data" in refused


def test_a_gate_with_more_conditions_than_a_record_holds_decides_on_all_of_them() -> None:
    registry = with_versions(1)
    limits = {f"m{n}": {"at_least": 0.5, "at_most": 1.0} for n in range(200)}
    suites = [{"suite": name, "metrics": limits} for name in ("one", "two", "three")]
    gate(registry, approvals=1, suites=suites)
    for suite in ("one", "two", "three"):
        metrics = {name: {"value": 0.7} for name in limits}
        registry.evaluate(1, suite=suite, evaluation_id=suite, metrics=metrics)
    decided = registry.promote(1)
    assert "0 of 1 approvals" in refusal(decided)
    assert isinstance(decided[0], ModelRequestRefused) and not decided[0].conditions[0].met
    assert len(decided[0].conditions) == MOST_CONDITIONS
    registry.approve(1, "bob")
    (promoted, _) = registry.promote(1)
    assert isinstance(promoted, ModelPromoted) and len(promoted.conditions) == MOST_CONDITIONS


def test_a_comparison_of_evaluations_that_are_not_there_is_refused() -> None:
    registry = with_versions(2)
    assert "record it first" in refusal(registry.ask(compared(2, 1, "better", "none", "none", registry.now_ms)))


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_a_result_that_is_no_number_is_no_evidence(figure: float) -> None:
    registry = with_versions(1)
    assert "no finite number" in refusal(registry.evaluate(1, figure, document="d" * 64))


def test_where_the_jobs_spec_is_not_known_no_result_on_data_is_evidence() -> None:
    registry = Registry()
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)), "r1")
    registry.ask(observed("r1", facts_of(1, data=(), splits=(), missing=("data", "spec"))))
    assert "spec of job train-1 is on no topic any more" in refusal(registry.evaluate(1))
    assert isinstance(registry.evaluate(1, dataset="", split=None)[0], ModelEvaluationRecorded)


def test_a_split_that_lineage_shows_as_trained_on_is_no_evidence() -> None:
    registry = with_versions(1)
    assert "held-out split" in refusal(registry.evaluate(1, split="train"))
    assert "held-out split" in refusal(registry.evaluate(1, split=None))
    assert isinstance(registry.evaluate(1, split="validation", dataset=VALIDATION)[0], ModelEvaluationRecorded)


@pytest.mark.parametrize(
    ("data", "splits", "dataset", "split", "refused"),
    [
        ((), (VALIDATION,), VALIDATION, "validation", True),
        ((), (f"{VALIDATION}/train",), "imagenet", "train", True),
        ((), ("imagenet@1.2.0/train",), VALIDATION, "train", True),
        ((), ("imagenet/train",), VALIDATION, "test", False),
        ((VALIDATION,), (), VALIDATION, None, True),
        ((VALIDATION,), (), "imagenet", None, True),
        ((VALIDATION,), (), VALIDATION, "validation", False),
        ((VALIDATION,), (f"{VALIDATION}/train",), "imagenet@sha256:" + "d" * 64, "train", False),
        (("s3://bucket/x",), (), VALIDATION, None, False),
    ],
)
def test_data_that_was_trained_on_is_found_by_name_and_as_a_whole(
    data: tuple[str, ...], splits: tuple[str, ...], dataset: str, split: str | None, refused: bool
) -> None:
    registry = with_versions(1, data=data, splits=splits)
    (decision,) = registry.evaluate(1, dataset=dataset, split=split)
    assert isinstance(decision, ModelRequestRefused if refused else ModelEvaluationRecorded)


def test_a_result_of_the_future_and_a_second_of_one_name_are_refused() -> None:
    registry = with_versions(1)
    assert "of the future" in refusal(registry.ask(compared_future(registry)))
    registry.evaluate(1)
    assert "recorded already" in refusal(registry.evaluate(1))


def compared_future(registry: Registry) -> object:
    from tests.support.registry_requests import evaluated

    return evaluated(1, 0.8, evaluated_at_ms=registry.now_ms + 3 * DAY_MS)


def test_a_new_champion_archives_the_old_one_and_of_two_promotions_at_once_one_counts() -> None:
    registry = with_versions(3)
    gate(registry, approvals=0)
    registry.promote(1, champion=0)
    promoted, archived, status = registry.promote(2, champion=1)
    assert isinstance(promoted, ModelPromoted) and promoted.previous == 1
    assert isinstance(archived, ModelArchived) and (archived.version, archived.successor) == (1, 2)
    assert isinstance(status, ModelStatus) and [each.stage.value for each in status.versions] == ["archived", "champion", "staging"]
    assert "is version 2 by now" in refusal(registry.promote(3, champion=1))
    assert "champion already" in refusal(registry.promote(2))


def test_an_emergency_skips_approvals_alone_and_is_listed_until_another_person_reviews_it() -> None:
    registry = with_versions(1)
    gate(registry, approvals=2, suites=({"suite": "accuracy"},))
    assert "no result of suite accuracy" in refusal(registry.promote(1, emergency=True, reason="down"))
    registry.evaluate(1)
    assert "needs a reason" in refusal(registry.promote(1, emergency=True))
    promoted, status = registry.promote(1, emergency=True, reason="down")
    assert isinstance(promoted, ModelPromoted) and promoted.emergency and isinstance(status, ModelStatus)
    assert status.champion is not None and status.champion.emergency
    assert "another person" in refusal(registry.ask(ModelEmergencyReview(**OF_MODEL, version="1", user="ada")))
    registry.ask(ModelEmergencyReview(**OF_MODEL, version="1", user="bob"))
    assert not registry.model.versions[0].emergency


def test_a_review_that_is_due_stays_due_whatever_happens_to_the_version() -> None:
    registry = with_versions(2)
    registry.promote(1, emergency=True, reason="down")
    registry.approve(2, "bob")
    registry.promote(2)
    first = next(each for each in registry.decisions if isinstance(each, ModelPromoted))
    registry.asked += 1
    later = first.model_copy(update={"emergency": False, "user": "bob", "number": registry.model.number + 1})
    fold_registry(registry.state, registry.now_ms, later)
    assert registry.model.versions[0].emergency
    assert "another person" in refusal(registry.ask(ModelEmergencyReview(**OF_MODEL, version="1", user="ada")))
    registry.ask(ModelEmergencyReview(**OF_MODEL, version="1", user="bob"))
    assert not registry.model.versions[0].emergency


def test_a_rollback_goes_to_the_last_champion_and_further_the_next_time() -> None:
    registry = with_versions(3)
    gate(registry, approvals=0)
    assert "promote a version" in refusal(registry.ask(ModelRollbackRequested(**OF_MODEL, reason="r")))
    registry.promote(1)
    assert "had no champion before" in refusal(registry.ask(ModelRollbackRequested(**OF_MODEL, reason="r")))
    registry.promote(2)
    registry.promote(3)
    assert "needs a reason" in refusal(registry.ask(ModelRollbackRequested(**OF_MODEL)))
    back = registry.ask(ModelRollbackRequested(**OF_MODEL, reason="complaints"))
    assert isinstance(back[0], ModelRolledBack) and (back[0].version, back[0].previous, back[0].reason) == (2, 3, "complaints")
    assert registry.model.champion == 2
    registry.ask(ModelRollbackRequested(**OF_MODEL, reason="still"))
    assert registry.model.champion == 1
    registry.ask(ModelRollbackRequested(**OF_MODEL, to="3", reason="it was something else"))
    assert registry.model.champion == 3 and registry.model.past == (1,)


def test_a_rollback_to_a_version_that_was_never_champion_is_refused() -> None:
    registry = with_versions(2)
    gate(registry, approvals=0)
    registry.promote(1)
    assert "never champion" in refusal(registry.ask(ModelRollbackRequested(**OF_MODEL, to="2", reason="r")))


def test_an_archived_version_is_not_promoted_and_comes_back_by_registering_it_again() -> None:
    registry = with_versions(2)
    registry.approve(1, "bob")
    registry.ask(ModelArchiveRequested(**OF_MODEL, version="1", user="eve"))
    assert not registry.model.versions[0].approvals
    registry.approve(1, "bob")
    assert "register it again" in refusal(registry.promote(1))
    registered = registry.register(1)[0]
    assert isinstance(registered, ModelVersionRegistered) and registered.version == 3
    assert "is version 3" in refusal(registry.register(1))
    assert "0 of 1 approvals" in refusal(registry.promote(3))
    registry.approve(3, "bob")
    assert isinstance(registry.promote(3)[0], ModelPromoted)


def test_a_past_champion_is_not_promoted_with_its_old_approvals() -> None:
    registry = with_versions(2)
    for version in (1, 2):
        registry.approve(version, "bob")
        registry.promote(version)
    assert "models rollback" in refusal(registry.promote(1))


def test_a_rollback_passes_over_what_a_person_archived() -> None:
    registry = with_versions(3)
    gate(registry, approvals=0)
    for version in (1, 2, 3):
        registry.promote(version)
    archived = registry.ask(ModelArchiveRequested(**OF_MODEL, version="2", user="eve"))
    assert isinstance(archived[0], ModelArchived) and archived[0].successor is None
    assert "archived already" in refusal(registry.ask(ModelArchiveRequested(**OF_MODEL, version="2", user="eve")))
    assert "a person archived" in refusal(registry.ask(ModelRollbackRequested(**OF_MODEL, to="2", reason="r")))
    registry.state = registry.machine.load(registry.machine.dump(registry.state))
    registry.ask(ModelRollbackRequested(**OF_MODEL, reason="r"))
    assert registry.model.champion == 1


def test_the_champion_is_not_archived() -> None:
    registry = with_versions(1)
    gate(registry, approvals=0)
    registry.promote(1)
    assert "is its champion" in refusal(registry.ask(ModelArchiveRequested(**OF_MODEL, version="champion", user="ada")))


def test_a_gate_that_was_changed_meanwhile_is_not_overwritten() -> None:
    registry = with_versions(1)
    gate(registry, approvals=0)
    change = ModelGateApplied(**OF_MODEL, gate=ModelGate(approvals=2), replaces=0)
    assert "is at version 1" in refusal(registry.ask(change))


def test_changes_of_stages_wait_for_the_store_in_order_and_are_taken_once() -> None:
    registry = with_versions(2)
    gate(registry, approvals=0)
    registry.promote(1)
    waiting = list(registry.state.stages.values())
    assert [(each.kind, each.decision) for each in waiting] == [("registered", 1), ("registered", 2), ("promoted", 4)]
    assert waiting[-1].champion == waiting[0].subject and waiting[-1].staging == waiting[1].subject
    for each in waiting:
        registry.ask(ModelStageStored(**OF_MODEL, number=each.decision))
    assert not registry.state.stages
    assert registry.ask(ModelStageStored(**OF_MODEL, number=4)) == []


def test_unknown_models_and_versions_are_refused_with_what_there_is() -> None:
    registry = Registry()
    assert "has no model resnet" in refusal(registry.promote(1))
    registry.register(1)
    assert "has no version 7" in refusal(registry.promote(7))
    assert "names neither" in refusal(registry.ask(ModelRegistered(**OF_MODEL)))


def test_texts_and_aliases_are_people_s_and_champion_is_no_alias() -> None:
    registry = Registry()
    made = registry.ask(ModelDescribed(**OF_MODEL, create=True, notes="digits", tags={"team": "a"}))
    assert [each.event_type.split(".")[2] for each in made] == ["description-changed", "status"]
    assert "exists already" in refusal(registry.ask(ModelDescribed(**OF_MODEL, create=True)))
    registry.register(1)
    registry.ask(ModelDescribed(**OF_MODEL, version="1", alias="candidate", tags={"a": "b", "c": "d"}))
    registry.ask(ModelDescribed(**OF_MODEL, version="1", remove_tags=("a",)))
    assert registry.model.aliases == (("candidate", 1),) and registry.model.versions[0].tags == (("c", "d"),)
    registry.ask(ModelDescribed(**OF_MODEL, alias="candidate"))
    assert registry.model.aliases == () and registry.model.notes == "digits"
    assert "the gate decides" in refusal(registry.ask(ModelDescribed(**OF_MODEL, version="1", alias="champion")))


def test_a_snapshot_decides_as_the_state_that_was_folded() -> None:
    registry = with_versions(2)
    gate(registry, approvals=0, suites=({"suite": "accuracy"},))
    registry.evaluate(1)
    registry.promote(1)
    registry.approve(2, "bob")
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(9)), "held")
    data = registry.machine.dump(registry.state)
    assert registry.machine.dump(registry.machine.load(data)) == data
