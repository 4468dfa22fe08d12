"""Laws of the registry under any order of requests, repeats and kills: at most one champion, and none whose gate was unmet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.profiles import examples
from tests.support.registry_requests import OF_MODEL, Registry, compared, content_of, evaluated, facts_of, observed
from trainhouse.events import (
    Event,
    ModelApprovalRecorded,
    ModelApproved,
    ModelArchiveRequested,
    ModelEmergencyReview,
    ModelEvaluationRecorded,
    ModelGate,
    ModelGateApplied,
    ModelPromoted,
    ModelPromotionRequested,
    ModelRegistered,
    ModelRejected,
    ModelRollbackRequested,
    ModelRolledBack,
    ModelStage,
    ModelStageStored,
    ModelStatus,
    envelope_of,
)
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.registry.gate_conditions import conditions

VERSIONS = st.integers(1, 4)
PEOPLE = st.sampled_from(["ada", "bob", "eve", "mia"])
GATES: list[dict[str, Any]] = [
    {"approvals": 0},
    {"approvals": 2},
    {"approvals": 1, "suites": [{"suite": "accuracy", "metrics": {"top1": {"at_least": 0.5}}}]},
    {"approvals": 0, "suites": [{"suite": "accuracy", "metrics": {"top1": {"against_champion": "not worse"}}}], "max_age_days": 2},
]


class AnyHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.sent: list[tuple[str, Event]] = []
        self.champions: set[int] = set()
        self.statuses: list[ModelStatus] = []

    @initialize()
    def begin(self) -> None:
        for number in (1, 2):
            self.registry.register(number, trained_by="ada" if number == 1 else "bob", user="mia")

    def ask(self, event: Event) -> None:
        registry = self.registry
        registry.asked += 1
        self.sent.append((f"request-{registry.asked}", event))
        self.feed(*self.sent[-1])

    def feed(self, request_id: str, event: Event) -> None:
        """Decides; each promotion is judged by the state before the record, in which it is the only request."""
        registry, before = self.registry, self.registry.model
        envelope = envelope_of(event, id=request_id, source="tests", now_ms=registry.now_ms)
        for decision in registry.record([Input(registry.asked, envelope)]):
            match decision:
                case ModelPromoted():
                    version, champion = before.get(decision.version), before.get(before.champion)
                    assert version is not None and version.stage is ModelStage.STAGING
                    found = conditions(before.gate, version, champion, registry.now_ms, emergency=decision.emergency)
                    assert all(each.met for each in found) and found == decision.conditions
                    assert len(set(decision.approvers)) >= (0 if decision.emergency else before.gate.approvals)
                    assert not {version.facts.trained_by, version.registered_by} & set(decision.approvers)
                    self.champions.add(decision.version)
                case ModelRolledBack():
                    assert decision.version in self.champions and decision.previous == before.champion
                    assert not before.versions[decision.version - 1].withdrawn
                case ModelApprovalRecorded():
                    assert decision.evidence == registry.model.versions[decision.version - 1].evidence
                case ModelEvaluationRecorded():
                    assert registry.model.versions[decision.version - 1].approvals == ()
                case ModelStatus():
                    self.statuses.append(decision)

    @rule(number=st.integers(1, 4), seen=st.booleans())
    def register(self, number: int, seen: bool) -> None:
        self.ask(ModelRegistered(**OF_MODEL, content=content_of(number), user="mia"))
        request_id = self.sent[-1][0]
        facts = facts_of(number, trained_by="ada" if number % 2 else "bob") if seen else None
        self.ask(observed(request_id, facts, refusal="" if seen else "gone"))

    @rule(version=VERSIONS, user=PEOPLE, approve=st.booleans())
    def judge(self, version: int, user: str, approve: bool) -> None:
        kind = ModelApproved if approve else ModelRejected
        self.ask(kind(**OF_MODEL, version=str(version), user=user))

    @rule(number=VERSIONS, top1=st.sampled_from([0.4, 0.6, 0.8, float("nan")]), split=st.sampled_from(["train", "validation"]))
    def evaluate(self, number: int, top1: float, split: str) -> None:
        at_ms = self.registry.now_ms
        self.ask(evaluated(number, top1, split=split, evaluated_at_ms=at_ms, evaluation_id=f"{number}-{top1}-{split}"))

    @rule(number=VERSIONS, against=VERSIONS, verdict=st.sampled_from(["better", "not worse", "worse", "too few samples"]))
    def compare(self, number: int, against: int, verdict: str) -> None:
        ids = (f"{number}-0.6-validation", f"{against}-0.6-validation")
        self.ask(compared(number, against, verdict, *ids, self.registry.now_ms))

    @rule(version=VERSIONS, emergency=st.booleans(), champion=st.sampled_from([None, 0, 1, 2]))
    def promote(self, version: int, emergency: bool, champion: int | None) -> None:
        self.ask(ModelPromotionRequested(**OF_MODEL, version=str(version), emergency=emergency, champion=champion, reason="r", user="ada"))

    @rule(to=st.sampled_from([None, "1", "2", "3"]))
    def roll_back(self, to: str | None) -> None:
        self.ask(ModelRollbackRequested(**OF_MODEL, to=to, reason="r", user="eve"))

    @rule(version=VERSIONS)
    def archive(self, version: int) -> None:
        self.ask(ModelArchiveRequested(**OF_MODEL, version=str(version), user="eve"))

    @rule(gate=st.sampled_from(GATES))
    def apply_gate(self, gate: dict[str, Any]) -> None:
        self.ask(ModelGateApplied(**OF_MODEL, gate=ModelGate.model_validate(gate), user="eve"))

    @rule(version=VERSIONS, user=PEOPLE)
    def review(self, version: int, user: str) -> None:
        self.ask(ModelEmergencyReview(**OF_MODEL, version=str(version), user=user))

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        if self.sent:
            before = self.registry.machine.dump(self.registry.state)
            self.feed(*data.draw(st.sampled_from(self.sent)))
            assert self.registry.machine.dump(self.registry.state) == before, "a repeat changes nothing"

    @rule()
    def store_the_first_stage(self) -> None:
        waiting = next(iter(self.registry.state.stages.values()), None)
        if waiting is not None:
            self.ask(ModelStageStored(**OF_MODEL, number=waiting.decision))

    @rule(hours=st.integers(1, 72))
    def wait(self, hours: int) -> None:
        self.registry.now_ms += hours * 3_600_000
        self.registry.tick()

    @rule()
    def kill(self) -> None:
        """Another process goes on from a snapshot."""
        machine = self.registry.machine
        data = machine.dump(self.registry.state)
        self.registry.state = machine.load(data)
        assert machine.dump(self.registry.state) == data

    @invariant()
    def at_most_one_champion_and_all_agree(self) -> None:
        model = self.registry.model
        found = [each.version for each in model.versions if each.stage is ModelStage.CHAMPION]
        assert found == ([] if model.champion is None else [model.champion])
        if self.statuses:
            status = self.statuses[-1]
            assert replace(model, number=status.number).status(status.updated_at_ms) == status
        numbers = [each.number for each in self.registry.decisions if isinstance(each, ModelDecision)]
        assert numbers == list(range(1, len(numbers) + 1)), "each decision has the next number"


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=examples(60), stateful_step_count=40, suppress_health_check=list(HealthCheck))
