"""Requests to the registry of models, as tests make them, and a machine that is fed with them record by record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from tests.support.driven_machine import DrivenMachine
from trainhouse.events import (
    Event,
    ModelApproved,
    ModelCompared,
    ModelContentObserved,
    ModelEvaluated,
    ModelPromotionRequested,
    ModelRegistered,
    VersionFacts,
    envelope_of,
)
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.intake.request_ids import request_digest
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.registry.registry_machine import RegistryMachine
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, RegistryState

PROJECT, NAME = "vision", "resnet"
OF_MODEL = {"project": PROJECT, "name": NAME}
VALIDATION = "imagenet@sha256:" + "c" * 64


def content_of(number: int) -> str:
    """Content hash of a version."""
    return hashlib.sha256(b"content %d" % number).hexdigest()


def facts_of(number: int, **changes: Any) -> VersionFacts:
    """Facts of a version."""
    facts = {
        "content": content_of(number),
        "job_id": f"train-{number}",
        "commit": number,
        "project": PROJECT,
        "trained_by": "ada",
        "schema_sha256": "a" * 64,
        "code_sha256": "b" * 64,
        "data": (VALIDATION,),
        "splits": (f"{VALIDATION}/train",),
        "framework": "torch",
        "size_bytes": 1000,
    }
    return VersionFacts.model_validate(facts | changes)


@dataclass
class Registry(DrivenMachine[RegistryState]):
    """A registry's machine, its state, and all that it decided."""

    machine: Machine[RegistryState] = field(default_factory=RegistryMachine)

    def register(self, number: int, user: str = "ada", **changes: Any) -> list[Event]:
        """Registers a version whose content is in the store."""
        request_id = f"register-{number}-{self.asked}"
        self.ask(ModelRegistered(**OF_MODEL, content=content_of(number), user=user, bump=changes.pop("bump", None)), request_id)
        return self.ask(observed(request_id, facts_of(number, **changes)))

    def evaluate(self, number: int, top1: float = 0.8, **changes: Any) -> list[Event]:
        """Records a result of suite accuracy for a version."""
        return self.ask(evaluated(number, top1, evaluated_at_ms=self.now_ms, **changes))

    def approve(self, version: int, user: str, **changes: Any) -> list[Event]:
        """An approval."""
        return self.ask(ModelApproved(**OF_MODEL, version=str(version), user=user, **changes))

    def promote(self, version: int, **changes: Any) -> list[Event]:
        """A promotion."""
        return self.ask(ModelPromotionRequested(**OF_MODEL, version=str(version), user="ada", **changes))

    @property
    def model(self) -> ModelEntry:
        """The model."""
        return self.state.entry(PROJECT, NAME)


def observed(request_id: str, facts: VersionFacts | None, **changes: Any) -> ModelContentObserved:
    """What the store says of a registration that was asked for under this id."""
    digest = request_digest(envelope_of(ClockTicked(), id=request_id, source="tests", now_ms=0)).hex()
    fields = OF_MODEL | {"request_id": request_id, "digest": digest, "facts": facts}
    return ModelContentObserved.model_validate(fields | changes)


def evaluated(number: int, top1: float, **changes: Any) -> ModelEvaluated:
    """A result."""
    fields: dict[str, Any] = {
        "content": content_of(number),
        "evaluation_id": f"evaluation-{number}-{top1}",
        "suite": "accuracy",
        "document": hashlib.sha256(f"{number} {top1}".encode()).hexdigest(),
        "dataset": VALIDATION,
        "split": "validation",
        "samples": 1000,
        "metrics": {"top1": {"value": top1}},
        "evaluated_at_ms": 0,
    }
    return ModelEvaluated.model_validate(OF_MODEL | fields | changes)


def compared(
    number: int, against: int, verdict: str, evaluation_id: str, against_id: str, at_ms: int, margin: float | None = 0.0
) -> ModelCompared:
    """A comparison of two versions."""
    metrics = ({"metric": "top1", "verdict": verdict, "difference": 0.01, "margin": margin},)
    fields = {"content": content_of(number), "against": content_of(against), "suite": "accuracy", "samples": 1000, "metrics": metrics}
    more = {"evaluation_id": evaluation_id, "against_evaluation_id": against_id, "compared_at_ms": at_ms}
    return ModelCompared.model_validate(OF_MODEL | fields | more)
