"""Looks after what waits for the object store in the registry's state, and gives the answers back as requests to the registry.

Holds: only the process that decides looks; a look goes on in the background, one at a time, in the order in which things wait; what was
answered and still waits is answered again later, since the answer may be lost. Whatever is done twice counts once. What fails keeps up
nothing but the later stages of its own model.
Never: decides; raises into the owner (what is away is asked again).
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from trainhouse.events import ModelContentObserved, ModelStageStored, envelope_of
from trainhouse.events.model.model_key import model_key
from trainhouse.events.model.model_registry import MOST_DATA
from trainhouse.events.runtime.turns import in_turn
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import MODEL_REQUESTS
from trainhouse.scheduler.core.registry.registry_state import HeldRegistration, RegistryState, StageChange
from trainhouse.scheduler.core.registry.trained_on import SPEC, with_data
from trainhouse.scheduler.stream.interfaces import Clock, Log
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError, KnownJob, ModelStore
from trainhouse.scheduler.stream.registry.job_facts import read_job

SOURCE: Final = "trainhouse/registry"
MOST_AT_ONCE: Final = 100
AGAIN_S: Final = 30.0
RETRY_S: Final = 1.0
MOST_JOBS: Final = 4096
UNKNOWN_S: Final = 300.0
"""For how long a job counts as unknown, once the status topic was read to its end without it."""
log_ = structlog.get_logger(__name__)


@dataclass(slots=True)
class StoreLookups:
    """Lookups of one process. `_due_s`: when what was answered, or failed, is due again; a model's stages fail under the model's key.
    `_jobs` keeps facts of jobs, which never change; `_unknown_s`: until when a job counts as unknown."""

    log: Log
    clock: Clock
    store: ModelStore
    _due_s: dict[str, float] = field(default_factory=dict)
    _jobs: OrderedDict[str, KnownJob] = field(default_factory=OrderedDict)
    _unknown_s: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _looking: "asyncio.Task[None] | None" = None

    async def after_record(self, follower: Follower[RegistryState]) -> None:
        """Begins a look, if anything waits that was not answered a moment ago."""
        now_s, state = self.clock.steady_s(), follower.folded.state
        if self._looking is not None and not self._looking.done():
            return
        waiting = {*state.held, *state.stages, *(_model_of(each) for each in state.stages.values())}
        self._due_s = {key: at_s for key, at_s in self._due_s.items() if key in waiting}
        # Those that failed come last, so that they leave the others their places; stages of one model stay in their order.
        due = [each for each in state.held.values() if self._is_due(each.key, now_s)]
        held = sorted(in_turn(due, lambda each: each.registered.project), key=self._held_since)
        changes = [each for each in state.stages.values() if self._is_stage_due(each, now_s)]
        stages = sorted(in_turn(changes, lambda each: each.project), key=self._stage_since)
        if held or stages:
            self._looking = asyncio.create_task(self._look(held[:MOST_AT_ONCE], stages[:MOST_AT_ONCE]))

    def _is_due(self, key: str, now_s: float) -> bool:
        return now_s >= self._due_s.get(key, float("-inf"))

    def _is_stage_due(self, change: StageChange, now_s: float) -> bool:
        return self._is_due(change.id, now_s) and self._is_due(_model_of(change), now_s)

    def _held_since(self, held: HeldRegistration) -> float:
        return self._due_s.get(held.key, float("-inf"))

    def _stage_since(self, change: StageChange) -> float:
        return self._due_s.get(_model_of(change), float("-inf"))

    async def _look(self, held: Sequence[HeldRegistration], stages: Sequence[StageChange]) -> None:
        failed = set()
        for change in stages:
            if (model := _model_of(change)) in failed:
                continue
            try:
                await self._store(change)
            except Exception as error:  # of the store or the brokers: whatever it is, nothing was decided by it
                failed.add(model)
                self._failed(model, f"stages of model {model}", error)
        for each in held:
            try:
                await self._answer(each.key, await self._observed(each), f"{each.key[:480]}:observed")
            except Exception as error:  # as above
                self._failed(each.key, f"registration {each.request_id} of model {each.registered.subject()}", error)

    def _failed(self, key: str, what: str, error: Exception) -> None:
        self._due_s[key] = self.clock.steady_s() + RETRY_S
        log_.warning("lookup in the store failed, trying again", about=what, error=f"{type(error).__name__}: {error}")

    async def _store(self, change: StageChange) -> None:
        await asyncio.to_thread(self.store.append, change)
        stored = ModelStageStored(project=change.project, name=change.name, number=change.decision)
        await self._answer(change.id, stored, f"{hashlib.sha256(change.id.encode()).hexdigest()}:stored")

    async def _observed(self, held: HeldRegistration) -> ModelContentObserved:
        asked = held.registered
        about = {"project": asked.project, "name": asked.name, "request_id": held.request_id, "digest": held.digest}
        try:
            facts = await asyncio.to_thread(self.store.facts, asked)
        except ContentRefusedError as refused:
            return ModelContentObserved.model_validate(about | {"refusal": str(refused)})
        job = await self._job(str(facts.job_id))
        if job is None:
            facts = facts.model_copy(update={"missing": (*facts.missing, "job")})
        else:
            facts = facts.model_copy(update={"trained_by": job.user, "project": job.project or facts.project})
            facts = with_data(facts, job.data, job.splits, MOST_DATA)
            if not (job.has_spec or facts.data or facts.splits):
                facts = facts.model_copy(update={"missing": (*facts.missing, SPEC)})
        return ModelContentObserved.model_validate(about | {"facts": facts})

    async def _answer(self, key: str, event: ModelContentObserved | ModelStageStored, event_id: str) -> None:
        envelope = envelope_of(event, id=event_id, source=SOURCE, now_ms=self.clock.now_ms())
        await self.log.send(MODEL_REQUESTS, model_key(event.project, event.name).encode(), encode(envelope))
        self._due_s[key] = self.clock.steady_s() + AGAIN_S

    async def _job(self, job_id: str) -> KnownJob | None:
        """A job's submitter, project and data by the topics; None for one that it does not have."""
        if job_id not in self._jobs:
            now_s = self.clock.steady_s()
            if now_s < self._unknown_s.get(job_id, float("-inf")):
                return None
            self._unknown_s.pop(job_id, None)
            found = await read_job(self.log, job_id)
            if found is None:
                self._unknown_s[job_id] = now_s + UNKNOWN_S
                if len(self._unknown_s) > MOST_JOBS:
                    self._unknown_s.popitem(last=False)
                return None
            self._jobs[job_id] = found
            if len(self._jobs) > MOST_JOBS:
                self._jobs.popitem(last=False)
        return self._jobs[job_id]


def _model_of(change: StageChange) -> str:
    return model_key(change.project, change.name)
