"""Models for the pages: the registry's machine behind a real Kafka, where the gateway looks for it, and what it decided in the tables.

Holds: SORTER has a whole life (an emergency that waits, a rollback, a candidate that was compared; in service its champion's inputs moved,
and version 4 is asked in shadow); MANY has a thousand versions; LONG has a name, texts and tags as strangers write them.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np

from tests.browser.dataset_story import READER, before_newest
from tests.browser.decided_story import DecidedStory
from tests.browser.world import World
from tests.support.registry_requests import Registry, content_of, facts_of, observed
from tests.support.service_story import ServiceStory, labels, numbers, texts
from trainhouse.events import (
    Event,
    ModelApproved,
    ModelCompared,
    ModelDescribed,
    ModelEvaluated,
    ModelGateApplied,
    ModelPromotionRequested,
    ModelRegistered,
    ModelRequestRefused,
    ModelRollbackRequested,
)
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_gate import ModelGate
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.scheduler.core.protocol.machine import Input

SORTER, MANY, LONG = "chat-sorter", "many-versions", "n" * 128
PROJECT = "research"
DAY_MS = 86_400_000
VERSIONS = 1_000
OBSERVED_HOURS, MOVED_HOURS, MOVED = 24, 9, 60
ATTACK = "<script>window.attacked = 1</script><img src=x onerror='window.attacked = 1'>"
DATA = str(before_newest().name)


class PlainRegistry(Registry):
    """The machine, without a look at its whole state at each record; the store has each change of a stage at once."""

    def record(self, inputs: list[Input]) -> list[Event]:
        decisions = self.machine.decide(self.state, self.now_ms, inputs)
        self.state = self.machine.fold(self.state, self.now_ms, inputs, decisions)
        self.state.stages.clear()
        self.decisions += decisions
        return [each for each in decisions if isinstance(each, ModelDecision | ModelRequestRefused)]


class ModelStory(DecidedStory):
    """The life of the models, then answers to what the pages ask for."""

    REQUESTS, HISTORY, DECIDED = topics.MODEL_REQUESTS, topics.MODEL_HISTORY, (ModelDecision, ModelRequestRefused)

    def __init__(self, world: World, settings: KafkaSettings) -> None:
        self._registry = PlainRegistry(now_ms=time.time_ns() // 1_000_000 - 30 * DAY_MS)
        super().__init__(world, settings, self._registry)

    def live(self) -> None:
        self._sorter()
        self._many()
        self._long()

    def add(self) -> None:
        self._served()

    def _register(self, name: str, number: int, project: str = PROJECT, *, later_ms: int = DAY_MS, **more: Any) -> None:
        of = {"project": project, "name": name}
        self._registry.now_ms += later_ms
        content = content_in(name, number)
        asked = f"{project}-{name}-{number}"
        self._registry.ask(ModelRegistered.model_validate(of | {"content": content, "user": "ada"} | more), asked)
        own = {"job_id": READER, "data": (DATA,), "splits": (f"{DATA}/train",)} if name == SORTER else {}
        facts = facts_of(number, project=project, content=content, **own)
        self._registry.ask(observed(asked, facts, **of))

    def _sorter(self) -> None:
        of: dict[str, Any] = {"project": PROJECT, "name": SORTER}
        limits = {"accuracy": {"at_least": 0.7}, "log_loss": {"against_champion": "not worse", "margin": 0.01}}
        gate = ModelGate.model_validate({"suites": [{"suite": "held-out", "metrics": limits}], "approvals": 1})
        ask = self._registry.ask
        self._register(SORTER, 1, notes="The first one.")
        self._evaluate(1, 0.86)
        ask(ModelApproved(**of, version="1", user="eve"))
        ask(ModelPromotionRequested(**of, version="1", user="ada", reason="it is the first"))
        ask(ModelGateApplied(**of, gate=gate, user="ops", reason="now that there is one"))
        self._register(SORTER, 2)
        self._evaluate(2, 0.87)
        self._compare(2, 1, "better")
        ask(ModelPromotionRequested(**of, version="2", user="bo", emergency=True, reason="version 1 answers nothing since noon"))
        self._registry.now_ms += DAY_MS // 2
        ask(ModelRollbackRequested(**of, user="bo", reason="complaints about short answers"))
        self._register(SORTER, 3, tags={"paper": "icml"})
        self._register(SORTER, 4, notes=f"Trained on **twice** the data; see the [paper](https://arxiv.org/abs/1706.03762).\n\n{ATTACK}")
        self._evaluate(4, 0.885)
        self._compare(4, 1, "not worse")

    def _served(self) -> None:
        """Chats became longer nine hours ago, as those are that version 4 was made of; labels of the last two hours are not there yet."""
        rng, story = np.random.default_rng(11), ServiceStory(self._world.tables, PROJECT, SORTER, self._registry.now_ms)
        languages, queues = {"en": 12_000, "fi": 5_000, "sv": 3_000}, {"billing": 9_000, "delivery": 8_000, "other": 3_000}
        for version, chars in ((1, 280), (4, 280 + MOVED)):
            inputs = {
                "json.chars": numbers(rng, chars, 90, 20_000),
                "json.lang": texts(languages),
                "json.hour": numbers(rng, 14, 4, 20_000),
            }
            outputs = {"confidence": numbers(rng, 0.8, 0.08, 20_000), "queue": texts(queues)}
            story.reference(version, f"{DATA}/train", inputs, outputs)
        for hours_ago in range(OBSERVED_HOURS, 0, -1):
            moved = MOVED if hours_ago < MOVED_HOURS else 0
            for version, right, count in ((1, 0.86 - moved / 400, 1200), (4, 0.885, 400)):
                chats = {"json.chars": numbers(rng, 280 + moved, 90, count), "json.hour": numbers(rng, 14, 4, count)}
                spread = rng.multinomial(count, [0.6, 0.25, 0.15])
                chats["json.lang"] = texts(dict(zip(languages, map(int, spread), strict=True)))
                shares = dict(zip(queues, map(int, rng.multinomial(count, [0.45, 0.4, 0.15])), strict=True))
                answers = {"confidence": numbers(rng, 0.8, 0.08, count), "queue": texts(shares)}
                about = {"count": count, "inputs": chats, "outputs": answers}
                known = (
                    {"outcomes": {"accuracy": labels(f"h{hours_ago}", [n < round(60 * right) for n in range(60)])}} if hours_ago > 2 else {}
                )
                story.window(version, hours_ago, **about, **known)
        story.window(7, 3, count=12)
        story.put()
        strange = ServiceStory(self._world.tables, "default", LONG, self._registry.now_ms)
        strange.reference(1, ATTACK, {ATTACK: numbers(rng, 0, 1, 1000), "f" * 300: numbers(rng, 0, 1, 1000)}, {})
        strange.window(1, 1, count=500, inputs={ATTACK: numbers(rng, 3, 1, 500), "f" * 300: numbers(rng, 0, 1, 500)})
        strange.put()

    def _evaluate(self, number: int, accuracy: float) -> None:
        value = {"value": accuracy, "low": accuracy - 0.012, "high": accuracy + 0.011}
        metrics = {"accuracy": value, "log_loss": {"value": 1.2 - accuracy, "low": 1.1 - accuracy, "high": 1.3 - accuracy}}
        about = {"suite": "held-out", "dataset": DATA, "split": "test", "samples": 4000, "evaluated_at_ms": self._registry.now_ms}
        fields = {"evaluation_id": f"e-{number}", "document": hashlib.sha256(b"%d" % number).hexdigest(), "metrics": metrics}
        of = {"project": PROJECT, "name": SORTER, "content": content_in(SORTER, number)}
        self._registry.ask(ModelEvaluated.model_validate(of | about | fields))

    def _compare(self, number: int, against: int, verdict: str) -> None:
        def row(metric: str, group: str, verdict: str, difference: float) -> dict[str, Any]:
            half = 0.009 if not group else 0.03
            about = {"metric": metric, "group": group, "verdict": verdict, "difference": difference, "p_value": 0.04, "margin": 0.01}
            return about | {"low": difference - half, "high": difference + half}

        rows = [row("accuracy", "", verdict, 0.012), row("log_loss", "", "better", -0.02)]
        rows += [row("accuracy", f"lang={lang}", word, by) for lang, word, by in GROUPS]
        of = {"project": PROJECT, "name": SORTER, "content": content_in(SORTER, number), "against": content_in(SORTER, against)}
        about = {"suite": "held-out", "samples": 4000, "evaluation_id": f"e-{number}", "against_evaluation_id": f"e-{against}"}
        self._registry.ask(ModelCompared.model_validate(of | about | {"metrics": rows, "compared_at_ms": self._registry.now_ms}))

    def _many(self) -> None:
        for number in range(1, VERSIONS + 1):
            self._register(MANY, number, "default", later_ms=1000)
        of: dict[str, Any] = {"project": "default", "name": MANY}
        self._registry.ask(ModelGateApplied(**of, gate=ModelGate(approvals=0), user="ops"))
        for number in range(1, 300):
            self._registry.now_ms += 60_000
            self._registry.ask(ModelPromotionRequested(**of, version=str(number), user="ada"))

    def _long(self) -> None:
        self._register(LONG, 1, "default", notes=ATTACK, tags={"t" * 60: "v" * 1000, "attack": ATTACK})
        self._registry.ask(ModelDescribed(project="default", name=LONG, notes=ATTACK * 3, tags={"a": "b" * 1000}, user="mallory"))


GROUPS = (("fi", "too few samples", 0.02), ("sv", "worse", -0.03), ("en", "better", 0.02))


def content_in(name: str, number: int) -> str:
    return hashlib.sha256(f"{name} {content_of(number)}".encode()).hexdigest()
