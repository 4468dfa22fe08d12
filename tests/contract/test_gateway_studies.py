"""Studies over the gateway, whose tables are real: who may begin, pause and stop them, what lists hold, a request that is sent twice."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any, cast

import orjson
import pytest

from tests.support.gateway_world import World
from tests.support.study_book import StudyBook
from tests.support.study_story import BEGAN_MS, SPEC, Story, both, story
from tests.support.trial_facts import fact_rows, facts_of
from trainhouse.client.errors import UnknownStudyError
from trainhouse.client.studies.study_reads import StudyReads
from trainhouse.client.studies.trial_facts import trial_facts
from trainhouse.events import RequestAccepted, StudyCreated, TrialState, TrialStopping
from trainhouse.events.model.project import ProjectApplied
from trainhouse.events.wire import topics
from trainhouse.gateway import topic_follower
from trainhouse.gateway.studies.study_answers import StudyAnswers, StudyRefusedError

ROUTE = "/v1/hpo/studies"


@pytest.fixture
def tuner(gateway_world: World) -> Iterator[StudyBook]:
    before, made = gateway_world.gateway.studies, StudyBook(gateway_world.tables)
    gateway_world.gateway.studies = made
    yield made
    gateway_world.gateway.studies = before


def asked(world: World, path: str = "", who: tuple[str, str] = ("ana", "submitter"), project: str = "vision", **fields: Any) -> Any:
    """The answer to a request about a study of a project; without a path, which begins one, the project is a field."""
    query, body = ({"project": project}, fields) if path else ({}, fields | {"project": project})
    return world.client.post(f"{ROUTE}{path}", params=query, json=body, headers=world.token(*who, ["vision", "speech"]))


def new(name: str, project: str = "vision", **spec: Any) -> dict[str, Any]:
    job = {key: value for key, value in SPEC["job"].items() if key != "user"}
    return {"name": name, "project": project, "spec": SPEC | {"job": job} | spec}


def test_a_study_is_the_tokens_and_its_trials_are_jobs_of_the_project(gateway_world: World, tuner: StudyBook) -> None:
    answer = asked(gateway_world, **new("own", text="space: …"))
    assert answer.status_code == 422, "no field of a spec"
    answer = asked(gateway_world, **new("own"))
    assert answer.status_code == 201, answer.text
    assert {name: answer.json()[name] for name in ("project", "study", "state", "number")} == {
        "project": "vision",
        "study": "own",
        "state": "RUNNING",
        "number": 1,
    }
    [event] = tuner.asked
    assert isinstance(event, StudyCreated) and event.requested_by is not None
    assert (event.user, event.requested_by.name, event.requested_by.role, event.asked_as) == ("ana", "ana", "submitter", "submitter")
    assert (event.spec.job.project, event.spec.job.user) == ("vision", "ana")
    accepted = gateway_world.bus.of(RequestAccepted)[-1]
    assert (accepted.target, accepted.project, accepted.sub, accepted.topic) == ("vision/own", "vision", "ana", topics.STUDY_REQUESTS)
    again = asked(gateway_world, **new("own"))
    assert again.status_code == 409 and "take another name" in again.json()["detail"]


@pytest.mark.parametrize(
    ("who", "body", "status", "words"),
    [
        (("vic", "viewer"), new("n1"), 403, "submitter"),
        (("ana", "submitter"), new("n2", "hidden"), 403, "no rights in project hidden"),
        (("ana", "submitter"), new("n3", job=SPEC["job"] | {"user": "eve"}), 403, "you submit as ana, not as eve"),
        (("ana", "submitter"), new("n4", job=SPEC["job"] | {"user": "ana", "project": "speech"}), 422, "leave it out"),
        (("ana", "submitter"), new("n5", job=SPEC["job"] | {"user": "ana", "env": {"HF_TOKEN": "hf_" + "a1" * 17}}), 422, "HF_TOKEN"),
        (("ana", "submitter"), new("n6", budget={}), 422, "name at least one bound"),
        (("ana", "submitter"), new("n7", space={"lr": {"low": 2, "high": 1}}), 422, "low = 2 is above high = 1"),
        (("ana", "submitter"), new("n8", job=SPEC["job"] | {"user": "ana", "resume_from": "not-there-1"}), 404, "not-there-1"),
    ],
)
def test_what_may_not_be_is_refused_before_it_is_sent(
    gateway_world: World, tuner: StudyBook, who: tuple[str, str], body: dict[str, Any], status: int, words: str
) -> None:
    answer = asked(gateway_world, who=who, **body)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert not tuner.asked


def test_short_forms_are_spelled_out(gateway_world: World, tuner: StudyBook) -> None:
    space = SPEC["space"] | {"depth": {"low": 1, "high": 8}}
    answer = asked(gateway_world, **new("short", metrics="val_loss", sampler="random", early_stopping="median", space=space))
    assert answer.status_code == 201, answer.text
    spec = tuner.asked[0].spec  # type: ignore[attr-defined]
    assert spec.space["depth"].kind == "int" and spec.space["lr"].kind == "float"
    assert (spec.sampler.name, spec.early_stopping.name, spec.metrics[0].name) == ("random", "median", "val_loss")


def test_the_same_key_is_one_study(gateway_world: World, tuner: StudyBook) -> None:
    headers = gateway_world.token("ana", "submitter", ["vision"]) | {"Idempotency-Key": "nightly-1"}
    first, second = (gateway_world.client.post(ROUTE, json=new("keyed"), headers=headers) for _ in range(2))
    assert first.status_code == second.status_code == 201 and first.json() == second.json()
    assert len(tuner.asked) == 1
    taken = headers | {"Idempotency-Key": "nightly-2"}
    refused = [gateway_world.client.post(ROUTE, json=new("keyed"), headers=taken) for _ in range(2)]
    assert [each.status_code for each in refused] == [409, 409] and refused[0].json()["detail"] == refused[1].json()["detail"]
    assert len(tuner.asked) == 2


def test_a_study_is_paused_resumed_and_stopped_by_those_who_write_in_its_project(gateway_world: World, tuner: StudyBook) -> None:
    about = {"name": "speech", "members": {"ana": "submitter", "vic": "viewer"}}
    applied = {"project": about, "version": 1, "user": "ops", "applied_at_ms": 1}
    gateway_world.gateway.projects.put(ProjectApplied.model_validate(applied))
    assert asked(gateway_world, **new("life", "speech")).status_code == 201
    for word, state, then in (("pause", "PAUSED", "PAUSED"), ("resume", "RUNNING", "RUNNING"), ("stop", "DRAINING", "ENDED")):
        answer = asked(gateway_world, f"/life/{word}", project="speech", reason=f"{word} it")
        assert answer.status_code == 200 and answer.json()["state"] == state, answer.text
        shown = gateway_world.client.get(f"{ROUTE}/life", params={"project": "speech"}, headers=gateway_world.admin()).json()
        assert shown["state"] == then, "an answer can be read; a study without trials ends at once"
        assert tuner.asked[-1].user == "ana"
    only_reads = asked(gateway_world, "/life/stop", ("vic", "submitter"), "speech")
    assert only_reads.status_code == 403, only_reads.text
    assert asked(gateway_world, "/life/stop", ("vic", "viewer"), "speech").status_code == 403
    assert asked(gateway_world, "/none/stop", project="speech").status_code == 404
    assert asked(gateway_world, "/no%01ne/stop", project="speech").status_code == 422, "no name of a study"
    hidden = gateway_world.token("eve", "submitter", ["vision"])
    assert gateway_world.client.post(f"{ROUTE}/life/stop", params={"project": "speech"}, headers=hidden).status_code == 404
    assert len(tuner.asked) == 4, "no refused one was sent"


def test_a_study_that_no_record_holds_is_refused_at_once(gateway_world: World, tuner: StudyBook) -> None:
    choices = [f"{number:04d}" * 256 for number in range(300)]
    answer = asked(gateway_world, **new("large", space=SPEC["space"] | {"size": {"choices": choices}}))
    assert answer.status_code == 422 and "shorten choices" in answer.text and not tuner.asked


@pytest.fixture
def whole(gateway_world: World, tuner: StudyBook) -> Story:
    told = story("vision", "whole")
    tuner.publish(list(both(told)))
    return told


def got(world: World, path: str = "", projects: tuple[str, ...] = ("vision",), **query: Any) -> Any:
    return world.client.get(f"{ROUTE}{path}", params=query, headers=world.token("vic", "viewer", list(projects)))


def test_a_study_is_shown_with_its_best_trial_its_cost_and_no_value_of_env(gateway_world: World, whole: Story) -> None:
    found = got(gateway_world, "/whole", project="vision").json()
    assert (found["state"], found["trials"]["COMPLETE"], found["device_s"], found["may"]) == ("RUNNING", 2, 255.0, [])
    assert found["best"] == [
        {
            "trial": 0,
            "job_id": whole.job_id(0),
            "values": {"val_loss": 0.4},
            "parameters": {"lr": 0.01, "opt": "adam", "nesterov": True},
        }
    ]
    assert found["spec"]["job"]["env"] == {"DATA_ROOT": "***"} and found["spec"]["space"]["lr"]["log"] is True
    assert {row["state"]: row["saved_device_s"] for row in found["cost"]} == {"COMPLETE": None, "FAILED": None, "RUNNING": None} | {
        "STOPPED": 80.0,
        "WAITING": None,
    }
    assert got(gateway_world, "/whole").status_code == 404, "the default project has none"
    assert got(gateway_world, "/whole", ("speech",), project="vision").status_code == 404
    assert got(gateway_world, "/whole/trials", ("speech",), project="vision").status_code == 404


def test_why_says_what_was_spent_on_what_and_what_was_saved(gateway_world: World, whole: Story) -> None:
    found = got(gateway_world, "/whole/why", project="vision").json()
    assert (found["state"], found["spent"]["device_s"], found["spent"]["cost"]) == ("RUNNING", 255.0, None)
    assert {each["on"]: (each["trials"], each["device_s"]) for each in found["on"]} == {
        "finished": (2, 220.0),
        "stopped early": (1, 30.0),
        "failed": (1, 5.0),
        "running": (1, 0.0),
        "waiting": (1, 0.0),
    }
    assert (found["saved"]["device_s"], found["saved"]["mean_device_s"]) == (80.0, 110.0) and "an estimate" in found["saved"]["how"]
    assert {each["bound"]: (each["used"], each["of"]) for each in found["bounds"]} == {"trials": (6.0, 6), "failed": (1.0, 4)}
    assert "1 of its trials run and 1 wait" in found["reason"]
    assert got(gateway_world, "/whole/why").status_code == 404, "the default project has none"
    assert got(gateway_world, "/whole/why", ("speech",), project="vision").status_code == 404


def test_both_ways_give_the_same_document(gateway_world: World, whole: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: (BEGAN_MS + 90_000) * 1_000_000)
    by_sql = StudyReads(sql=cast(Any, _Sql(gateway_world))).why("vision", "whole")
    by_http = got(gateway_world, "/whole/why", project="vision").json()
    assert by_http == orjson.loads(orjson.dumps(by_sql))
    with pytest.raises(UnknownStudyError):
        StudyReads(sql=cast(Any, _Sql(gateway_world))).why("vision", "none")


class _Sql:
    """Queries of the client, on the tables of the gateway."""

    def __init__(self, world: World) -> None:
        self.world, self.found = world, list[Any]()

    def table(self, query: str, values: Any) -> _Sql:
        self.found = self.world.tables.ask(query, dict(values))
        return self

    def dicts(self) -> list[Any]:
        return self.found


def test_trials_come_in_pages_by_number(gateway_world: World, whole: Story) -> None:
    found: list[Any] = []
    cursor = None
    while True:
        page = got(gateway_world, "/whole/trials", project="vision", limit=4, **({"cursor": cursor} if cursor else {})).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [row["trial"] for row in found] == [0, 1, 2, 3, 4, 5]
    assert found[1]["parameters"] == {"lr": 0.02, "opt": "sgd", "nesterov": True} and (found[0]["best"], found[1]["best"]) == (True, False)
    assert found[2]["stopped_early"] is True and found[4]["ended_at_ms"] is None and found[0]["began_at_ms"] > 0
    failed = got(gateway_world, "/whole/trials", project="vision", state="FAILED").json()["items"]
    assert [row["trial"] for row in failed] == [3]
    assert got(gateway_world, "/whole/trials", project="vision", cursor="x").status_code == 400


def test_facts_of_trials_are_those_that_the_tables_have_numbers_that_are_none_included(gateway_world: World, tuner: StudyBook) -> None:
    told = Story("vision", "facts")
    told.begin()
    for trial, value in enumerate((0.7, math.nan, -math.inf)):
        told.start(trial, 0.01)
        told.value(trial, 10, value)
    about = {"trial": 1, "job_id": told.job_id(1), "early": True, "step": 10, "reason": "asha: …"}
    told.decide(TrialStopping, **about)
    told.end(1, TrialState.STOPPED, math.nan, 30.0)
    tuner.publish(list(both(told)))
    expected = [{key: row[key] for key in COMPARED} for row in fact_rows(told.decisions)]

    def sent(path: str, **query: Any) -> Any:
        return got(gateway_world, path, project="vision", **query).json()

    first = sent("/facts/facts", limit=7)
    found = [*first["items"], *sent("/facts/facts", limit=7, cursor=first["next_cursor"])["items"]]
    assert [{key: row[key] for key in COMPARED} for row in found] == expected and len(expected) == 11
    assert [row["value"] for row in found if row["fact"] == "value"] == ["0.7", "nan", "-inf"]
    direct = StudyReads(sql=cast(Any, Direct(gateway_world))).facts("vision", "facts")
    assert [{key: row[key] for key in COMPARED} for row in direct] == expected
    assert repr(trial_facts(found)) == repr(trial_facts(direct)) == repr(facts_of(told.decisions))
    assert got(gateway_world, "/facts/facts", ("speech",), project="vision").status_code == 404


COMPARED = ("number", "fact", "trial", "step", "early", "state", "device_s", "value")


class Direct:
    """SQL of the same tables, without the gateway."""

    def __init__(self, world: World) -> None:
        self.world = world

    def table(self, query: str, values: Any) -> Any:
        self.found = self.world.tables.ask(query, values)
        return self

    def dicts(self) -> list[dict[str, Any]]:
        return list(self.found)


def test_lists_have_the_studies_of_ones_projects_the_newest_first(gateway_world: World, whole: Story) -> None:
    names = {row["study"] for row in got(gateway_world, limit=1000).json()["items"]}
    assert "whole" in names and {row["project"] for row in got(gateway_world).json()["items"]} == {"vision"}
    assert got(gateway_world, project="speech").json()["items"] == []
    assert "whole" in {row["study"] for row in got(gateway_world, state="RUNNING").json()["items"]}
    assert "whole" not in {row["study"] for row in got(gateway_world, state="PAUSED").json()["items"]}


def test_a_request_without_brokers_says_what_is_missing(gateway_world: World) -> None:
    answer = asked(gateway_world, **new("unsent"))
    assert answer.status_code == 503 and "no brokers" in answer.json()["detail"]


def test_a_request_whose_answer_is_late_is_in_the_audit_too(gateway_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ready() -> None:
        """The history is followed."""

    answers = StudyAnswers(None)
    monkeypatch.setattr(answers._follower, "ready", ready)
    monkeypatch.setattr(topic_follower, "ANSWER_S", 0.05)
    monkeypatch.setattr(gateway_world.gateway, "studies", answers)
    answer = asked(gateway_world, **new("late"))
    assert answer.status_code == 503 and "the tuner did not answer" in answer.json()["detail"]
    accepted = [each for each in gateway_world.bus.of(RequestAccepted) if each.target == "vision/late"]
    assert [(each.sub, each.action) for each in accepted] == [("ana", "POST /v1/hpo/studies")]


def test_only_the_answer_to_a_request_ends_its_wait(gateway_world: World) -> None:
    async def wait() -> Any:
        answers = StudyAnswers(None)
        waiting = answers._answers._waiting["mine"] = asyncio.get_running_loop().create_future()
        other, own = Story("vision", "s"), Story("vision", "s")
        other.begin("other")
        own.refuse("mine", "no room")
        answers.take(other.decisions[0])
        assert not waiting.done()
        answers.take(own.decisions[0])
        return waiting.exception()

    refused = asyncio.run(wait())
    assert isinstance(refused, StudyRefusedError) and str(refused) == "no room"
