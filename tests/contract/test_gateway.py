"""The gateway's app over the real engine: who sees what, pages, writes, waiting, limits, injection, live streams."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import jwt
import pytest

from tests.support.dataset_versions import version
from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gateway_world import KEY, NOW_MS, SPEC, World
from tests.support.tables.ledger_world import HOUR_MS, T0, Attempt, ended, node, tell
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.client.metrics_table import table_of
from trainhouse.events import (
    AccessRefused,
    CancelJob,
    ChangeJob,
    DatasetVersionPublished,
    EventId,
    GangAllocated,
    JobId,
    JobRejected,
    JobSubmitted,
    LogLines,
    NodeAccess,
    ProfileRanks,
    RequestAccepted,
    ReviewJob,
)
from trainhouse.events.model.alert import AlertFired, Severity
from trainhouse.events.model.checkpoint import CheckpointCompleted, CheckpointDeleted
from trainhouse.events.model.dead_letter import DeadLetter
from trainhouse.events.model.decisions import JobRetuned, TokenSeen
from trainhouse.events.model.handover import InputRedirected
from trainhouse.events.model.pool import NodeRestricted, Restriction
from trainhouse.events.model.tracking import TraceRecorded
from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import Envelope, Order, rfc3339
from trainhouse.events.wire.journal import JournaledInput, JournalRecord
from trainhouse.gateway import requests
from trainhouse.gateway.auth.authentication import COOKIE, PAGE_HEADER
from trainhouse.gateway.errors import SqlUnavailableError
from trainhouse.gateway.queries import cursors, read_your_writes
from trainhouse.gateway.routes import rank_output
from trainhouse.projections.record import Record

JOBS = "/v1/training-jobs"
OWN, OTHERS = "own-1", "others-1"
PARTS = (
    *("", "/events", "/explain", "/logs", "/attempts", "/ranks", "/checkpoints", "/timeline", "/gpu-seconds", "/config", "/metrics"),
    *("/artifacts", "/tags"),
    *("/points", "/curves?metric=loss", "/step-heatmap", "/stream", "/terms", "/profiles", "/profiles/r1/0", "/checkpoint-tags"),
)


def forged(claims: dict[str, Any], key: str | bytes, algorithm: str = "HS256") -> dict[str, str]:
    """A token that nobody issued."""
    sound = {"sub": "eve", "roles": ["admin"], "projects": ["*"], "jti": "1", "iss": "trainhouse"}
    return {"Authorization": "Bearer " + jwt.encode(sound | claims, key, algorithm)}


@pytest.fixture(scope="module")
def world(gateway_world: World) -> World:
    gateway_world.submit(OWN, "vision", reason=f"makes way for {OTHERS}.")
    gateway_world.submit(OTHERS, "speech")
    gateway_world.log(OWN, [f"line {n}" for n in range(5)])
    gateway_world.points(OWN, range(5))
    return gateway_world


def problem(response: Any, status: int) -> dict[str, Any]:
    """The problem that an answer must be."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["status"] == status and found["title"] and found["detail"] and found["type"].startswith("urn:")
    return found


# -- who is asking


@pytest.mark.parametrize("part", ["", "/" + OWN, "/" + OWN + "/stream"])
@pytest.mark.parametrize(
    "header",
    [
        {},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer not.a.token"},
        {"Authorization": f"Bearer {'x' * 9000}"},
        forged({}, "k" * 40),
        forged({}, "", "none"),
        forged({"roles": ["god"]}, KEY),
        forged({"iss": "another"}, KEY),
        forged({"projects": "*"}, KEY),
        forged({"jti": 1}, KEY),
    ],
)
def test_without_a_sound_token_nothing_is_told(world: World, header: dict[str, str], part: str) -> None:
    response = world.client.get(JOBS + part, headers=header)
    told = problem(response, 401)
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert OWN not in told["detail"]


def test_a_token_ends_by_its_time_and_by_revocation(world: World) -> None:
    problem(world.client.get(JOBS, headers=world.token(expires_s=int(time.time()) - 60)), 401)
    held = world.token(token_id="tok-1")
    assert world.client.get(JOBS, headers=held).status_code == 200
    world.gateway.revocations.add("tok-1")
    assert "revoked" in problem(world.client.get(JOBS, headers=held), 401)["detail"]


def test_until_revocations_are_known_nobody_is_let_in(world: World) -> None:
    world.gateway.revocations.known = False
    try:
        response = world.client.get(JOBS, headers=world.admin())
    finally:
        world.gateway.revocations.known = True
    problem(response, 503)
    assert response.headers["retry-after"]


def test_a_session_reads_by_its_cookie_and_writes_only_with_the_pages_header(world: World) -> None:
    token = world.token()["Authorization"].removeprefix("Bearer ")
    made = world.client.post("/v1/session", json={"token": token})
    assert made.status_code == 200 and "HttpOnly" in made.headers["set-cookie"] and "SameSite=strict" in made.headers["set-cookie"]
    try:
        assert world.client.get("/v1/whoami").json()["sub"] == "ana"
        problem(world.client.post(f"{JOBS}/{OWN}/cancel"), 403)
        assert world.client.post(f"{JOBS}/{OWN}/cancel", headers={PAGE_HEADER: "1"}).status_code == 202
    finally:
        world.client.cookies.delete(COOKIE)
    problem(world.client.post("/v1/session", json={"token": "forged"}), 401)


# -- what somebody sees


@pytest.mark.parametrize("part", PARTS)
def test_another_projects_job_answers_exactly_as_an_unknown_one(world: World, part: str) -> None:
    of_others = world.client.get(f"{JOBS}/{OTHERS}{part}", headers=world.token())
    unknown = world.client.get(f"{JOBS}/unknown-1{part}", headers=world.token())
    problem(of_others, 404)
    assert of_others.text.replace(OTHERS, "JOB") == unknown.text.replace("unknown-1", "JOB")
    assert set(of_others.headers) == set(unknown.headers)


@pytest.mark.parametrize(
    ("path", "body"), [("cancel", {}), ("change", {"priority": 1}), ("review", {"action": "send"}), ("checkpoints/1/restore", None)]
)
def test_nobody_writes_to_another_projects_job(world: World, path: str, body: object) -> None:
    before = len(world.bus.of(CancelJob))
    of_others = world.client.post(f"{JOBS}/{OTHERS}/{path}", headers=world.token(), json=body)
    unknown = world.client.post(f"{JOBS}/unknown-1/{path}", headers=world.token(), json=body)
    problem(of_others, 404)
    assert of_others.text.replace(OTHERS, "JOB") == unknown.text.replace("unknown-1", "JOB")
    assert len(world.bus.of(CancelJob)) == before


def test_a_review_is_asked_for_and_what_is_not_under_review_answers_a_conflict(world: World) -> None:
    path, before = f"{JOBS}/reviewed-1/review", len(world.bus.of(ReviewJob))
    world.submit("reviewed-1", "vision")
    told = problem(world.client.post(path, headers=world.token(), json={"action": "go_on"}), 409)
    assert "job reviewed-1 is RUNNING, not NEEDS_REVIEW" in told["detail"] and len(world.bus.of(ReviewJob)) == before
    problem(world.client.post(path, headers=world.token(role="viewer"), json={"action": "send"}), 403)
    problem(world.client.post(path, headers=world.token(), json={"action": "stop"}), 422)
    made = world.client.post(path, headers=world.token(), json={"action": "send", "reason": "odd"})
    assert made.status_code == 202 and made.json()["job_id"] == "reviewed-1"
    world.submit("reviewed-1", "vision", seq=2, state="NEEDS_REVIEW")
    assert world.client.post(path, headers=world.token(), json={"action": "cancel", "reason": "useless"}).status_code == 202
    sent = world.bus.of(ReviewJob)[before:]
    assert [(e.action, e.reason, e.user) for e in sent] == [("send", "odd", "ana"), ("cancel", "useless", "ana")]
    assert all(e.requested_by.name == "ana" and e.requested_by.via == "gateway" for e in sent)
    world.submit("reviewed-1", "vision", seq=3, state="FAILED")
    assert "has ended" in problem(world.client.post(path, headers=world.token(), json={"action": "send"}), 409)["detail"]


def test_compare_and_lineage_and_lists_show_no_other_project(world: World) -> None:
    problem(world.client.get(f"/v1/compare?job={OWN}&job={OTHERS}", headers=world.token()), 404)
    for path in (JOBS, "/v1/queue", "/v1/cost?by=job", "/v1/goodput?by=job", f"/v1/lineage?id=job:{OTHERS}", "/v1/alerts"):
        response = world.client.get(path, headers=world.token())
        assert response.status_code in (200, 404), response.text
        assert OTHERS not in json.dumps(response.json().get("items", [])), path


def test_texts_name_no_job_of_another_project(world: World) -> None:
    assert world.client.get(f"{JOBS}/{OWN}", headers=world.token()).json()["reason"] == "makes way for another job."
    assert world.client.get(f"{JOBS}/{OWN}", headers=world.admin()).json()["reason"] == f"makes way for {OTHERS}."


def test_a_comparison_names_no_job_of_another_project(world: World) -> None:
    (own,) = world.client.get(f"/v1/compare?job={OWN}", headers=world.token()).json()["items"]
    assert own["reason"] == "makes way for another job."


def test_a_page_of_many_words_is_read_whole_for_hidden_names(world: World) -> None:
    words = " ".join(f"word-{n:05}" for n in range(200))
    for n in range(40):
        world.submit("wordy-1", "vision", NOW_MS + n, seq=n + 1, reason=f"{words.replace('word', f'word{n}')} {OTHERS}")
    told = world.client.get(f"{JOBS}/wordy-1/events", headers=world.token())
    assert told.status_code == 200, told.text
    assert "word39-00199 another job" in told.text and OTHERS not in told.text


@pytest.fixture(scope="module")
def hidden(world: World) -> str:
    """The beginning of the names of another project's jobs: one ran and broke its node, one waits."""

    def alert(key: str, summary: str, **labels: str) -> AlertFired:
        about: dict[str, Any] = {"rule": "hidden", "key": key, "severity": Severity.WARNING, "summary": summary, "labels": labels}
        return AlertFired(**about, since_ms=T0, at_ms=T0)

    ran = Attempt("hidden-1", 1, 7200, [("steps", 60)], ranks={"n9": 2}, ends=False)
    about = {"node_id": "n9", "pool": "p", "restriction": Restriction.QUARANTINED, "by": "trainhouse", "at_ms": T0}
    closed = NodeRestricted.model_validate(about | {"reason": "1 failures are blamed on it: job hidden-1: it broke"})
    alerts = [alert("job_id=hidden-1", "it hangs", job_id="hidden-1"), alert("project=speech", "hidden-2 waits", project="speech")]
    told = [*ran.told(), ended("hidden-1", 7260, project="speech"), (topics.VERDICTS, closed, T0)]
    tell(world.tables, [node("n9", 2), *told])
    world.tables.put(topics.ALERTS, [*alerts, alert("pool=p", "closed for hidden-1", pool="p")])
    world.submit("hidden-2", "speech", state="PENDING")
    return "hidden-"


@pytest.mark.parametrize(
    "path",
    ["cost?by=job", "goodput?by=job", "lineage?id=job:hidden-1", "alerts", "queue"] + [f"nodes{p}" for p in ("", "/n9", "/n9/gangs")],
)
def test_what_the_fleet_shows_names_no_job_of_another_project(world: World, hidden: str, path: str) -> None:
    span = {"since": rfc3339(T0), "until": rfc3339(T0 + 4 * HOUR_MS)} if path.startswith(("cost", "goodput")) else {}
    address = str(httpx.URL(f"/v1/{path}").copy_merge_params(span))
    to_all, to_vision = (world.client.get(address, headers=who) for who in (world.admin(), world.token()))
    assert to_all.status_code == 200 and hidden in to_all.text
    assert to_vision.status_code == 200 and hidden not in to_vision.text
    if path == "alerts":
        assert [alert["summary"] for alert in to_vision.json()["items"]] == ["closed for another job"]
    if path == "nodes/n9":
        assert to_vision.json()["restriction_reason"] == "1 failures are blamed on it: job another job: it broke"


def test_a_device_tells_that_it_is_closed_or_held_and_not_by_whose_job(world: World, hidden: str) -> None:
    (first, *_) = world.client.get("/v1/nodes/n9/devices", headers=world.admin()).json()["items"]
    (seen, *_) = world.client.get("/v1/nodes/n9/devices", headers=world.token()).json()["items"]
    assert hidden in first["closed"] and hidden not in str(seen)
    assert seen["state"] == first["state"]


def test_teams_use_is_told_of_ones_own_projects_only(world: World) -> None:
    own, theirs = Attempt("used-own", 1, 0, [("steps", 600)]), Attempt("used-theirs", 1, 0, [("steps", 1200)], ranks={"n2": 2})
    ends = [ended("used-own", 600, project="vision"), ended("used-theirs", 1200, project="speech", team="blue")]
    shared = [*Attempt("used-shared", 1, 600, [("steps", 300)]).told(), ended("used-shared", 900, project="speech")]
    tell(world.tables, [node("n1", 4), node("n2", 4), *own.told(), *theirs.told(), *ends, *shared])

    def held(by: str, who: dict[str, str]) -> dict[str, float]:
        asked = {"by": by, "since": rfc3339(T0), "until": rfc3339(T0 + HOUR_MS)}
        rows = world.client.get("/v1/utilization", headers=who, params=asked).json()["items"]
        return {row.get("team") or row.get("node_id") or row["pool"]: row["held_gpu_seconds"] for row in rows}

    assert held("team", world.token()) == {"red": 1200}
    assert held("team", world.token(projects=["speech"])) == {"blue": 2400, "red": 600}
    assert held("team", world.token(projects=["nobody's"])) == {}
    assert held("team", world.admin()) == {"blue": 2400, "red": 1800}
    # Of nodes and pools everybody is told the same: nobody is named.
    assert held("hour", world.token()) == held("hour", world.admin()) == {"p": 4200}
    assert held("node", world.token()) == {"n1": 1800, "n2": 2400}


def test_a_viewer_writes_nothing_and_a_submitter_only_in_its_projects(world: World) -> None:
    problem(world.client.post(JOBS, headers=world.token(role="viewer"), json={"spec": SPEC | {"project": "vision"}}), 403)
    problem(world.client.post(f"{JOBS}/{OWN}/cancel", headers=world.token(role="viewer")), 403)
    problem(world.client.post(JOBS, headers=world.token(), json={"spec": SPEC | {"project": "speech"}}), 403)
    problem(world.client.post(JOBS, headers=world.token(), json={"spec": SPEC | {"project": "vision", "user": "bob"}}), 403)
    problem(world.client.post(JOBS, headers=world.token(), json={"spec": SPEC | {"project": "vision"}, "job_id": "mine"}), 403)
    told = problem(world.client.post("/v1/query", headers=world.token(role="admin"), json={"query": "SELECT 1"}), 403)
    assert "all projects" in told["detail"]
    problem(world.client.get("/v1/audit", headers=world.token(role="operator")), 403)


def test_a_checkpoint_of_another_project_cannot_be_begun_from(world: World) -> None:
    spec = SPEC | {"project": "vision", "resume_from": f"{OTHERS}@1"}
    problem(world.client.post(JOBS, headers=world.token(), json={"spec": spec}), 404)


def test_a_refused_submission_is_its_projects_to_see(world: World) -> None:
    event = JobSubmitted.model_validate({"job_id": "refused-1", "spec": SPEC | {"project": "vision"}})
    world.tables.put(topics.JOBS, [event], NOW_MS)
    (row,) = world.tables.ask("SELECT event_id FROM events_rows WHERE job_id = 'refused-1'", {})
    rejected = JobRejected(job_id=JobId("refused-1"), submission_id=row["event_id"], reason="no such pool", rejected_at_ms=NOW_MS)
    world.tables.put(topics.STATUS, [rejected], NOW_MS)
    assert world.client.get(f"{JOBS}/refused-1", headers=world.token()).json()["state"] == "REJECTED"
    problem(world.client.get(f"{JOBS}/refused-1", headers=world.token(projects=["speech"])), 404)


# -- pages, filters, injection


def test_pages_neither_repeat_nor_skip(world: World) -> None:
    for n in range(23):
        world.submit(f"paged-{n:02}", "paged", NOW_MS + n // 4)  # several at the same instant
    seen, cursor, pages = [], None, 0
    while True:
        more: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        answer = world.client.get(JOBS, headers=world.token(projects=["paged"]), params={"limit": 5, **more}).json()
        seen += [job["job_id"] for job in answer["items"]]
        pages += 1
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert pages == 5 and sorted(seen, reverse=True) == seen and len(set(seen)) == 23


def test_stacks_are_no_lines_unless_they_are_asked_for(world: World) -> None:
    world.submit("hung-1", "vision")
    world.log("hung-1", ["a line"])
    of = {"job_id": "hung-1", "attempt": 1, "epoch": 2, "rank": 0, "node_id": "n1", "start": 0, "end": 9, "read_at_ms": NOW_MS}
    stack = LogLines.model_validate(of | {"stream": "stacks", "lines": ("hang_here (train.py:3)",), "offsets": (0,)})
    world.tables.put(topics.LOGS, [stack], NOW_MS)

    def lines(**params: str) -> list[str]:
        found = world.client.get(f"{JOBS}/hung-1/logs", headers=world.token(), params=params)
        return [line["line"] for line in found.json()["items"]]

    assert lines() == ["a line"] and lines(stream="stacks") == ["hang_here (train.py:3)"]


def test_lines_page_backward_and_search(world: World) -> None:
    newest = world.client.get(f"{JOBS}/{OWN}/logs?limit=2", headers=world.token()).json()
    assert [line["line"] for line in newest["items"]] == ["line 3", "line 4"]
    older = world.client.get(f"{JOBS}/{OWN}/logs", headers=world.token(), params={"limit": 2, "cursor": newest["next_cursor"]}).json()
    assert [line["line"] for line in older["items"]] == ["line 1", "line 2"]
    found = world.client.get(f"{JOBS}/{OWN}/logs?search=LINE%202", headers=world.token()).json()
    assert [line["line"] for line in found["items"]] == ["line 2"]


@pytest.mark.parametrize(
    "text", ["' OR 1=1 --", "'; DROP TABLE jobs_rows; --", "\\' OR '1'='1", "{x:String}", "%27", "\t\n", "☃", "'] OR ['"]
)
def test_names_and_filters_are_values(world: World, text: str) -> None:
    for filtered in ("user", "name", "pool", "project", "team", "source"):
        answer = world.client.get(JOBS, headers=world.admin(), params={filtered: text})
        assert answer.status_code == 200 and answer.json()["items"] == []
    assert world.client.get(f"{JOBS}/{OWN}/logs", headers=world.token(), params={"search": text}).json()["items"] == []
    problem(world.client.get("/v1/nodes/" + text.replace("\n", "").replace("\t", " "), headers=world.token()), 404)
    # A project's name in a token is a value as well.
    assert world.client.get(JOBS, headers=world.token(projects=[text.replace("\t\n", "x")])).json()["items"] == []


def test_points_page_by_their_order_and_those_alike_stay_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_output, "POINTS", 4)
    world.submit("pointed-1", "vision")
    for start, steps in enumerate([range(10), range(2, 4), range(3, 4), range(8, 12)]):
        world.points("pointed-1", steps, start * 1000)
    pages, cursor = list[list[int]](), None
    while cursor is not None or not pages:
        answer = world.client.get(f"{JOBS}/pointed-1/points", headers=world.token(), params={"cursor": cursor} if cursor else {})
        pages.append(table_of([answer.content])["step"].to_pylist())
        cursor = answer.headers.get("x-next-cursor")
    # The third point of step 3 comes with the two before it; a page that is not full is the last.
    assert pages == [[0, 1, 2, 2], [3, 3, 3, 4], [5, 6, 7, 8, 8], [9, 9, 10, 11], []]


def test_the_queue_pages_and_is_its_projects(world: World) -> None:
    for n in range(5):
        world.submit(f"queued-{n}", "queueing", state="PENDING")
    world.submit("queued-others", "speech", state="PENDING")
    first = world.client.get("/v1/queue?limit=3", headers=world.token(projects=["queueing"])).json()
    more = {"limit": 3, "cursor": first["next_cursor"]}
    second = world.client.get("/v1/queue", headers=world.token(projects=["queueing"]), params=more).json()
    assert [job["job_id"] for job in first["items"] + second["items"]] == [f"queued-{n}" for n in range(5)]
    assert second["next_cursor"] is None and set(first["items"][0]) >= {"place", "text", "unblock", "waiting_since"}


def test_a_cursor_beyond_what_its_columns_hold_is_refused(world: World) -> None:
    found: tuple[tuple[str, list[Any]], ...] = (
        (f"{JOBS}/{OWN}/logs", [-1, 0, 0]),
        (f"{JOBS}/{OWN}/points", ["loss", 0, -1, 0, 0]),
        ("/v1/queue", ["p", -1, "j"]),
        (JOBS, [2**63, "j"]),
    )
    for path, key in found:
        problem(world.client.get(path, headers=world.token(), params={"cursor": cursors.encode(key)}), 400)


@pytest.mark.parametrize("until", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59"])
def test_a_period_before_all_time_is_refused(world: World, until: str) -> None:
    for path in ("utilization", "cost", "goodput"):
        problem(world.client.get(f"/v1/{path}", headers=world.token(), params={"until": until}), 400)


@pytest.mark.parametrize("cursor", ["x", "W10", "eyJ9", "WzEsMl0", "W251bGwsbnVsbF0", "!!", "WyJhIiwgImIiXQ", "WzFlOTksICJiIl0"])
def test_a_cursor_that_nobody_was_given_is_refused(world: World, cursor: str) -> None:
    problem(world.client.get(JOBS, headers=world.token(), params={"cursor": cursor}), 400)


# -- writes


def test_a_submission_is_one_event_and_a_line_of_the_audit(world: World) -> None:
    response = world.client.post(JOBS, headers=world.token(), json={"spec": SPEC | {"project": "vision"}})
    told = response.json()
    assert response.status_code == 202 and response.headers["location"] == f"{JOBS}/{told['job_id']}"
    event = world.bus.of(JobSubmitted)[-1]
    assert (event.job_id, event.spec.user, event.spec.sha256()) == (told["job_id"], "ana", told["spec_sha256"])
    accepted = world.bus.of(RequestAccepted)[-1]
    assert (accepted.sub, accepted.target, accepted.event_id, accepted.project) == ("ana", told["job_id"], told["event_id"], "vision")


def test_a_repeat_with_its_key_is_the_same_event_and_another_body_is_refused(world: World) -> None:
    headers = world.token() | {"Idempotency-Key": "k-1"}
    first, second = (world.client.post(JOBS, headers=headers, json={"spec": SPEC | {"project": "vision"}}).json() for _ in range(2))
    assert (first["job_id"], first["event_id"]) == (second["job_id"], second["event_id"])
    problem(world.client.post(JOBS, headers=headers, json={"spec": SPEC | {"project": "vision", "seed": 7}}), 422)
    other = world.client.post(JOBS, headers=world.token("bob") | {"Idempotency-Key": "k-1"}, json={"spec": SPEC | {"project": "vision"}})
    assert other.json()["job_id"] != first["job_id"]
    # A gateway that remembers nothing finds the key's first spec in the tables.
    world.gateway.recent.clear()
    world.submit(first["job_id"], "vision")
    problem(world.client.post(JOBS, headers=headers, json={"spec": SPEC | {"project": "vision", "seed": 7}}), 422)


def test_same_key_and_body_have_the_same_ids_and_others_do_not() -> None:
    assert requests.keyed_event_id("a", "bc", "x") != requests.keyed_event_id("ab", "c", "x")
    assert requests.keyed_job_id("Ana Müller", "k") == requests.keyed_job_id("Ana Müller", "k") != requests.keyed_job_id("Ana Müller", "l")


def test_restore_submits_the_same_spec_from_the_commit(world: World) -> None:
    about = {"job_id": OWN, "attempt": 0, "epoch": 1, "commit": 3, "step": 40, "uri": "s3://c", "bytes_total": 1, "bytes_new": 1}
    fields = about | {"stage_s": 0.1, "upload_s": 0.1, "world_size": 1, "completed_at_ms": NOW_MS}
    known = {name: value for name, value in fields.items() if name in CheckpointCompleted.model_fields}
    needed = {n: 1 for n, f in CheckpointCompleted.model_fields.items() if f.is_required() and n not in known}
    world.tables.put(topics.CHECKPOINTS, [CheckpointCompleted.model_validate(known | needed)], NOW_MS)
    response = world.client.post(f"{JOBS}/{OWN}/checkpoints/40/restore", headers=world.token())
    assert response.status_code == 202, response.text
    event = world.bus.of(JobSubmitted)[-1]
    assert event.spec.resume_from == f"{OWN}@3" and event.spec.name == "gpt" and event.job_id == response.json()["job_id"]
    problem(world.client.post(f"{JOBS}/{OWN}/checkpoints/41/restore", headers=world.token()), 404)


def test_a_deleted_checkpoint_is_listed_as_such_and_not_restored(world: World) -> None:
    of: dict[str, Any] = {"job_id": OWN, "attempt": 0, "epoch": 1}
    size: dict[str, Any] = {"uri": "s3://c", "bytes_total": 1, "bytes_new": 1}
    saved = [CheckpointCompleted(**of, **size, commit=n, step=n * 10 + 500, at_ms=NOW_MS, memory_nodes=("n1", "n2")) for n in (51, 52)]
    world.tables.put(topics.CHECKPOINTS, saved, NOW_MS)
    for at_ms in (NOW_MS + 1000, NOW_MS + 2000):
        world.tables.put(topics.TRACKING, [CheckpointDeleted(**of, commit=51, step=1010, user="ana", at_ms=at_ms)], at_ms)
    listed = {row["commit"]: row for row in world.client.get(f"{JOBS}/{OWN}/checkpoints", headers=world.token()).json()["items"]}
    assert (listed[51]["state"], listed[51]["deleted_by"], listed[52]["state"]) == ("DELETED", "ana", "COMPLETED")
    assert listed[51]["deleted_at"] and listed[52]["deleted_at"] is None and listed[52]["memory_nodes"] == ["n1", "n2"]
    store = MemoryObjectStore()
    world.client.app.state.tags_store = store  # type: ignore[attr-defined]
    for name in ("paper", f"used-by:{OTHERS}"):
        store.put(f"jobs/{OWN}/tags/{name}", b'{"commit":52}')
    tags = world.client.get(f"{JOBS}/{OWN}/checkpoint-tags", headers=world.token()).json()["items"]
    assert tags == [{"commit": 52, "name": "paper"}, {"commit": 52, "name": "used-by:another job"}], "of another project's job no name"
    refused = problem(world.client.post(f"{JOBS}/{OWN}/checkpoints/1010/restore", headers=world.token()), 409)
    assert "was deleted" in refused["detail"]


def test_tags_are_soon_not_known_while_the_store_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_S3_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.delattr(world.client.app.state, "tags_store", raising=False)  # type: ignore[attr-defined]
    began_s = time.monotonic()
    problem(world.client.get(f"{JOBS}/{OWN}/checkpoint-tags", headers=world.token()), 503)
    assert time.monotonic() - began_s < StoreSettings().deadline_s / 2
    del world.client.app.state.tags_store  # type: ignore[attr-defined]


def test_reading_after_a_write_waits_for_it_and_says_when_it_cannot(world: World) -> None:
    told = world.client.post(JOBS, headers=world.token(), json={"spec": SPEC | {"project": "vision", "user": "ana"}}).json()
    path = f"{JOBS}/{told['job_id']}?after={told['after']}"
    response = world.client.get(path, headers=world.token())
    assert "behind" in problem(response, 503)["detail"] and response.headers["retry-after"]
    threading.Timer(0.3, world.submit, (told["job_id"], "vision")).start()
    assert world.client.get(path, headers=world.token()).json()["job_id"] == told["job_id"]
    problem(world.client.get(f"{JOBS}?after=forged", headers=world.token()), 400)
    forged = read_your_writes.token_of(read_your_writes.Written(job_id=OTHERS, event_id="e", partition=0, offset=0), b"x" * 32)
    problem(world.client.get(f"{JOBS}?after={forged}", headers=world.token()), 400)


def test_reading_after_a_refused_write_waits_for_all_that_tells_of_it(world: World) -> None:
    """A projector writes a refusal to two tables, and the submission from another topic: any of them may be there before the rest."""
    spec = SPEC | {"project": "vision", "user": "ana"}
    sent = world.client.post(JOBS, headers=world.token(), json={"spec": spec}).json()
    path = f"{JOBS}/{sent['job_id']}?after={sent['after']}"
    (event_id, submission), *_ = [(event_id, event) for _, event_id, event in world.bus.sent if isinstance(event, JobSubmitted)][::-1]
    refusal = {"submission_id": event_id, "job_id": sent["job_id"], "reason": "no such pool"}
    world.tables.insert("rejections_rows", refusal)
    problem(world.client.get(path, headers=world.token()), 503)
    of_job = {"job_key": sent["job_id"], "job_id": sent["job_id"], "submission_id": event_id, "state": "REJECTED"}
    world.tables.insert("jobs_rows", of_job)
    problem(world.client.get(path, headers=world.token()), 503)
    world.tables.put(topics.JOBS, [submission], NOW_MS, event_id=event_id)
    found = world.client.get(path, headers=world.token())
    assert found.status_code == 200 and found.json()["state"] == "REJECTED", found.text


# -- limits


def test_a_huge_body_is_refused_before_it_is_read(world: World) -> None:
    def drip() -> Iterator[bytes]:
        for _ in range(10_000):
            given.append(1)
            yield b"x" * 65_536

    given: list[int] = []
    declared = world.token() | {"Content-Length": str(10**9), "Content-Type": "application/json"}
    problem(world.client.post(JOBS, headers=declared, content=b"{}"), 413)
    problem(world.client.post(JOBS, headers=world.token() | {"Content-Type": "application/json"}, content=drip()), 413)


@pytest.mark.parametrize(
    ("sql", "status"),
    [
        ("INSERT INTO jobs_rows (job_key) VALUES ('x')", 400),
        ("DROP TABLE jobs_rows", 403),
        ("SELECT 1; SELECT 2", 400),
        ("SELECT * FROM file('/etc/passwd', 'LineAsString')", 403),
        ("SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')", 403),
        ("SELECT * FROM s3('http://127.0.0.1:1/x', 'CSV')", 403),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", 403),
        ("SELECT 1 SETTINGS readonly = 0", 403),
        ("SELECT 1 SETTINGS max_execution_time = 3600", 403),
        ("SELECT number FROM numbers(100000000000)", 422),
        ("SELECT repeat('x', 1000000) FROM numbers(10000)", 422),
        ("SELECT * FROM nowhere", 400),
        ("SELECT", 400),
    ],
)
def test_raw_sql_only_reads_and_only_so_much(world: World, sql: str, status: int) -> None:
    told = problem(world.client.post("/v1/query", headers=world.admin(), json={"query": sql}), status)
    assert told["code"]


def test_raw_sql_answers_in_the_form_asked_for_with_bound_values(world: World) -> None:
    asked = {"query": "SELECT {x:String} AS x FORMAT JSONEachRow", "parameters": {"x": "a'\\\t"}, "format": "CSV"}
    response = world.client.post("/v1/query", headers=world.admin(), json=asked)
    assert response.json() == {"x": "a'\\\t"} and response.headers["x-content-type-options"] == "nosniff"


def test_projections_that_are_away_are_said_to_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise SqlUnavailableError("the projections do not answer")

    monkeypatch.setattr(world.gateway.reader, "rows", away)
    response = world.client.get(JOBS, headers=world.token())
    problem(response, 503)
    assert response.headers["retry-after"]


def test_a_refusal_is_told_to_the_audit(world: World) -> None:
    world.client.get(f"{JOBS}/{OTHERS}/logs", headers=world.token("mallory", token_id="m"))
    told = next(event for event in reversed(world.bus.of(AccessRefused)) if event.sub == "mallory")
    assert (told.status, told.action, told.target, told.token_id) == (404, f"GET {JOBS}/{{job_id}}/logs", OTHERS, "m")


def test_a_request_finds_its_own_answer_also_when_a_later_one_changed_the_job_again(world: World) -> None:
    def asked(number: int) -> JournaledInput:
        event = ChangeJob.model_validate({"job_id": OWN, "priority": number})
        return JournaledInput(number, Envelope(EventId(f"asked-{number}"), "directory", event, order=Order(0, number, 0)))

    def token(number: int) -> TokenSeen:
        return TokenSeen(partition=0, seq=number, ordinal=0)

    def retuned(priority: int) -> JobRetuned:
        return JobRetuned.model_validate({"job_id": OWN, "priority": priority, "limits": {}})

    passed_on = InputRedirected.model_validate({"offset": 4, "pool": "p", "to_partition": 1})
    decisions = (token(1), retuned(11), token(2), retuned(12), token(3), token(4), passed_on)
    inputs = tuple(asked(number) for number in range(1, 5))
    world.tables.journal(6, [JournalRecord(1, "o", NOW_MS, 4, inputs, decisions, 0, 1, 9, "0" * 64)])

    def terms(event_id: str) -> tuple[Any, ...]:
        found = world.client.get(f"{JOBS}/{OWN}/terms", headers=world.token(), params={"event_id": event_id}).json()
        return found["priority"], found["answered"], found["changed"] and found["changed"]["priority"]

    handled = [(12, True, 11), (12, True, 12), (12, True, None)]
    assert [terms(f"asked-{n}") for n in range(1, 6)] == [*handled, (12, False, None), (12, False, None)]
    assert world.client.get(f"{JOBS}/{OTHERS}/terms", headers=world.token(), params={"event_id": "asked-1"}).status_code == 404


def test_tables_of_a_projector_of_before_leave_a_request_without_an_answer(world: World) -> None:
    command, path = world.tables.clickhouse.command, f"{JOBS}/{OWN}/terms"
    command("ALTER TABLE decisions_rows DROP INDEX by_request")
    command("ALTER TABLE decisions_rows RENAME COLUMN request_id TO of_later")
    try:
        found = world.client.get(path, headers=world.token(), params={"event_id": "asked-1"})
    finally:
        command("ALTER TABLE decisions_rows RENAME COLUMN of_later TO request_id")
        command("ALTER TABLE decisions_rows ADD INDEX by_request request_id TYPE bloom_filter GRANULARITY 1")
    assert found.status_code == 200 and (found.json()["answered"], found.json()["changed"]) == (None, None)


def test_a_request_that_could_not_be_handled_is_refused_with_the_reason(world: World) -> None:
    def set_aside(topic: str, offset: int, event_id: str, job_id: str = OWN) -> Record:
        letter = DeadLetter(topic, 0, offset, "handling it failed: KeyError", job_id, event_id)
        return Record(topics.DEAD_LETTERS, 0, offset, NOW_MS, letter.key, b"{}", tuple(letter.headers()))

    records = [set_aside(topics.ADMISSION, 1, "asked-20"), set_aside(topics.CONTROL, 2, "asked-21"), set_aside(topics.JOBS, 3, "asked-22")]
    world.tables.put_records([*records, set_aside(topics.CONTROL, 4, "asked-23", OTHERS)])

    def refused(event_id: str) -> str | None:
        found = world.client.get(f"{JOBS}/{OWN}/terms", headers=world.token(), params={"event_id": event_id}).json()
        assert not found["answered"]
        reason: str | None = found["refused"]
        return reason

    failed = "handling it failed: KeyError"
    assert [refused(f"asked-{n}") for n in range(20, 24)] == [failed, failed, None, None]


# -- profiles


def test_traces_of_a_job_are_listed_and_fetched(world: World) -> None:
    store = MemoryObjectStore()
    world.client.app.state.code_store = store  # type: ignore[attr-defined]
    content = b"a trace" * 1_000_000
    sha256 = hashlib.sha256(content).hexdigest()
    store.put(f"artifacts/{OWN}/{sha256}", content)
    about: dict[str, Any] = {
        "job_id": OWN,
        "attempt": 0,
        "epoch": 1,
        "node_id": "n1",
        "sha256": sha256,
        "first_step": 3,
        "steps": 2,
        "at_ms": NOW_MS,
    }
    uris = {4: store.uri(f"artifacts/{OWN}/{sha256}"), 5: f"s3://elsewhere/artifacts/{OWN}/{sha256}"}
    for rank, uri in uris.items():
        more = {"rank": rank, "path": f"profiles/r1/rank-{rank}.pt.trace.json.gz", "uri": uri, "size_bytes": len(content) + 1}
        world.tables.put(topics.ENVIRONMENTS, [TraceRecorded.model_validate(about | more)], NOW_MS)
    listed = world.client.get(f"{JOBS}/{OWN}/profiles", headers=world.token()).json()["items"]
    assert [(t["profile"], t["rank"], t["size_bytes"]) for t in listed] == [("r1", 4, len(content) + 1), ("r1", 5, len(content) + 1)]
    got = world.client.get(f"{JOBS}/{OWN}/profiles/r1/4", headers=world.token(role="viewer"))
    assert (
        got.content == content
        and got.headers["content-disposition"].startswith("attachment; filename=")
        and "gzip" in got.headers["content-type"]
    )
    for place in ("r1/5", "r1/6", "r2/4"):
        assert "profile" in problem(world.client.get(f"{JOBS}/{OWN}/profiles/{place}", headers=world.token()), 404)["detail"]


def running(world: World, job_id: str, project: str, nodes: tuple[str, ...]) -> None:
    """A job that makes steps, one rank on each node."""
    world.submit(job_id, project, seq=2, step=7, epoch=3, world_size=len(nodes))
    place = {"boot_id": "b", "address": "127.0.0.1", "devices": ["0"]}
    placements = [place | {"node_id": n, "first_rank": rank} for rank, n in enumerate(nodes)]
    spec = SPEC | {"project": project, "gang": {"ranks": len(nodes)}}
    about = {"job_id": job_id, "attempt": 0, "epoch": 3, "pool": "default", "spec": spec, "spec_sha256": "0"}
    gang = GangAllocated.model_validate(about | {"placements": placements, "master_address": "127.0.0.1", "master_port": 1234})
    world.tables.put(topics.ALLOCATIONS, [gang], NOW_MS)


def access(job_id: str, request: str, outcome: str, **more: Any) -> NodeAccess:
    about = {"at_ms": NOW_MS, "since_ms": NOW_MS, "access": "exec", "action": "ProfileRanks", "job_id": job_id, "access_id": request}
    return NodeAccess.model_validate(about | {"outcome": outcome} | more)


def test_a_profile_is_asked_of_the_agents_of_the_ranks_and_followed(world: World) -> None:
    running(world, "prof-1", "vision", ("n1", "n2", "n3"))
    path = f"{JOBS}/prof-1/profiles"
    answer = world.client.post(path, json={"ranks": [0, 2, 0], "steps": 4}, headers=world.token())
    assert answer.status_code == 202, answer.text
    asked = answer.json()
    events = [e for e in world.bus.of(ProfileRanks) if e.request_id == asked["profile"]]
    assert [(e.node_id, e.ranks, e.steps, e.job_id) for e in events] == [("n1", (0,), 4, "prof-1"), ("n3", (2,), 4, "prof-1")]
    by = events[0].requested_by
    assert by is not None and (by.name, by.via, by.role) == ("ana", "gateway", "submitter")
    place = f"{path}/{asked['profile']}"
    assert world.client.get(place, headers=world.token(role="viewer")).json()["ranks"] == []
    told = [
        access("prof-1", asked["profile"], "granted", node_id="n1", ranks=(0,)),
        access("prof-1", asked["profile"], "refused", node_id="n3", ranks=(2,), reason="its signature does not hold"),
        access("prof-1", "another", "granted", node_id="n2", ranks=(1,)),
    ]
    world.tables.put(topics.NODE_AUDIT, told, NOW_MS)
    found = world.client.get(place, headers=world.token()).json()["ranks"]
    assert [(r["rank"], r["state"], r["reason"]) for r in found] == [(0, "recording", ""), (2, "refused", "its signature does not hold")]
    again = [
        access("prof-1", asked["profile"], "refused", node_id="n1", ranks=(0,), reason="it was asked before", at_ms=NOW_MS + 1),
        access("prof-1", asked["profile"], "granted", node_id="n3", ranks=(2,), at_ms=NOW_MS + 1),
    ]
    world.tables.put(topics.NODE_AUDIT, again, NOW_MS)
    found = world.client.get(place, headers=world.token()).json()["ranks"]
    assert [(r["rank"], r["state"], r["reason"]) for r in found] == [(0, "recording", ""), (2, "recording", "")]
    about = {"job_id": "prof-1", "attempt": 0, "epoch": 3, "node_id": "n1", "sha256": "a" * 64, "first_step": 8, "steps": 4}
    path = f"profiles/{asked['profile']}/rank-0.pt.trace.json.gz"
    stored = {"rank": 0, "path": path, "uri": f"s3://b/artifacts/prof-1/{'a' * 64}", "size_bytes": 9}
    world.tables.put(topics.ENVIRONMENTS, [TraceRecorded.model_validate(about | stored | {"at_ms": NOW_MS})], NOW_MS)
    found = world.client.get(place, headers=world.token()).json()["ranks"]
    assert [(r["rank"], r["state"], r["size_bytes"]) for r in found] == [(0, "stored", 9), (2, "recording", None)]


def test_a_profile_is_refused_to_others_and_where_there_is_nothing_to_record(world: World) -> None:
    running(world, "prof-2", "speech", ("n1",))
    running(world, "prof-3", "vision", ("n1",))
    world.submit("prof-4", "vision", seq=2, step=None, world_size=1)
    world.submit("prof-5", "vision", seq=2, state="SUCCEEDED", step=7, world_size=1)
    before = len(world.bus.of(ProfileRanks))

    def refused(job_id: str, status: int, body: Any = None, **who: Any) -> str:
        answer = world.client.post(f"{JOBS}/{job_id}/profiles", json=body or {}, headers=world.token(**who))
        return str(problem(answer, status)["detail"])

    assert "prof-2" in refused("prof-2", 404)
    problem(world.client.get(f"{JOBS}/prof-2/profiles/r1", headers=world.token()), 404)
    refused("prof-3", 403, role="viewer")
    assert "reported no step yet" in refused("prof-4", 409)
    assert "it is SUCCEEDED" in refused("prof-5", 409)
    assert "ranks 0 to 0, not 3" in refused("prof-3", 422, {"ranks": [3]})
    refused("prof-3", 422, {"steps": 501})
    assert len(world.bus.of(ProfileRanks)) == before


def test_the_last_values_of_some_metrics_alone(world: World) -> None:
    path = f"{JOBS}/{OWN}/metrics"
    some = world.client.get(path, params={"metric": ["loss", "mfu"]}, headers=world.token()).json()["items"]
    assert [(row["metric"], row["rank"]) for row in some] == [("loss", 0)]
    assert world.client.get(path, params={"metric": "mfu"}, headers=world.token()).json()["items"] == []


def test_versions_of_datasets_are_listed_to_their_project_alone(world: World) -> None:
    ours, theirs = version("faces", "vision"), version("voices", "speech")
    said = [DatasetVersionPublished(version=v, semver="1.0.0", created_by="ada", published_at_ms=NOW_MS) for v in (ours, theirs)]
    world.tables.put(topics.DATASETS, said, NOW_MS)
    ana = world.token("ana")
    assert [item["version"] for item in world.client.get("/v1/datasets", headers=ana).json()["items"]] == [str(ours.name)]
    [found] = world.client.get("/v1/datasets/faces", headers=ana).json()["items"]
    assert found["tags"] == ["1.0.0"] and found["deprecated"] == 0 and found["splits"] == ["train"]
    for name in ("voices", "none"):
        assert world.client.get(f"/v1/datasets/{name}", headers=ana).status_code == 404
    listed = world.client.get("/v1/datasets", headers=world.admin(), params={"project": "speech", "deprecated": False}).json()["items"]
    assert [item["version"] for item in listed] == [str(theirs.name)]
    assert world.client.get("/v1/datasets", headers=world.admin(), params={"deprecated": True}).json()["items"] == []
