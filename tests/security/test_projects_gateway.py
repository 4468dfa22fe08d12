"""What a token may try at the gateway's door against the projects that it names, over the real engine; Kafka alone is a list.

Each test is a door: a token whose holder was removed, a role that a membership does not give, a flood, a store that is full, and what the
gateway vouches for when it passes a job on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from tests.support.gateway_world import KEY, NOW_MS, SPEC, World, world_in
from trainhouse.events import AccessRefused, CancelJob, ChangeJob, ChangeProject, JobSubmitted, ProjectApplied, envelope_of
from trainhouse.events.model.bounds import MOST_SMALL
from trainhouse.events.model.tracking import ArtifactLogged
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.projections.record import Record
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes

JOBS = "/v1/training-jobs"
JOB = "vision-1"
MEMBERS = {"ana": "submitter", "vera": "viewer", "max": "maintainer"}
_versions = itertools.count(1)


def declare(world: World, name: str = "vision", **fields: Any) -> ProjectApplied:
    """A project as the bus would tell of it, to the gateway and to the projections."""
    about = {"project": {"name": name} | fields, "version": next(_versions), "user": "ops", "applied_at_ms": NOW_MS}
    applied = ProjectApplied.model_validate(about)
    world.gateway.projects.put(applied)
    world.tables.put(topics.PROJECTS, [applied], NOW_MS)
    return applied


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("projects")) as world:
        world.submit(JOB, "vision")
        world.submit("speech-1", "speech")
        yield world


@pytest.fixture
def world(made: World) -> World:
    """With vision as it was declared, and nothing held against anybody."""
    declare(made, members=MEMBERS)
    declare(made, "speech")
    made.gateway.limits._buckets.clear()
    made.gateway.storage._read_s = made.gateway.queued._read_s = float("-inf")
    return made


def submit(world: World, headers: dict[str, str], **spec: Any) -> Any:
    return world.client.post(JOBS, headers=headers, json={"spec": SPEC | {"project": "vision"} | spec})


def refused(answer: Any, status: int) -> str:
    """What a refusal says."""
    assert answer.status_code == status, answer.text
    return str(answer.json()["detail"])


def test_a_removed_members_token_opens_nothing_from_the_moment_that_the_bus_tells_it(world: World) -> None:
    held = world.token("ana")
    assert world.client.get(f"{JOBS}/{JOB}", headers=held).status_code == 200
    declare(world, members={"max": "maintainer"})
    for path in ("/v1/whoami", JOBS, f"{JOBS}/{JOB}", f"{JOBS}/{JOB}/logs", f"{JOBS}/{JOB}/stream", "/v1/queue"):
        assert "member of none" in refused(world.client.get(path, headers=held), 403), path
    assert "member of none" in refused(submit(world, held), 403)
    assert "member of none" in refused(world.client.put(f"/v1/code/{'0' * 64}", headers=held, content=b"x"), 403)
    assert world.client.post("/api/2.0/mlflow/experiments/search", headers=held, json={"max_results": 1}).status_code == 403


def test_a_stream_of_a_member_who_was_removed_ends(world: World) -> None:
    from trainhouse.gateway.auth import tokens

    token = world.token("ana")["Authorization"].removeprefix("Bearer ")
    principal = world.gateway.projects.narrowed(tokens.read(KEY, token))
    assert world.gateway.rights_over(principal) == ""
    declare(world, members={"max": "maintainer"})
    assert "no member of project vision" in world.gateway.rights_over(principal)


def test_of_several_projects_the_others_stay(world: World) -> None:
    held = world.token("eve", projects=("vision", "speech"))
    assert world.client.get("/v1/whoami", headers=held).json()["projects"] == ["speech"]
    assert world.client.get(f"{JOBS}/{JOB}", headers=held).status_code == 404
    assert world.client.get(f"{JOBS}/speech-1", headers=held).status_code == 200
    assert "no rights in project vision" in refused(submit(world, held), 403)
    assert submit(world, held, project="speech").status_code == 202


def test_a_submitters_token_is_not_more_than_its_holders_membership(world: World) -> None:
    held = world.token("vera", "submitter")
    assert world.client.get(f"{JOBS}/{JOB}", headers=held).status_code == 200
    before = len(world.bus.of(JobSubmitted) + world.bus.of(CancelJob) + world.bus.of(ChangeJob))
    assert "may read project vision" in refused(submit(world, held), 403)
    assert "may read" in refused(world.client.post(f"{JOBS}/{JOB}/cancel", headers=held), 403)
    assert "may read" in refused(world.client.post(f"{JOBS}/{JOB}/change", headers=held, json={"priority": 1}), 403)
    created = world.client.post("/api/2.0/mlflow/experiments/create", headers=held, json={"name": "vision/x"})
    assert created.status_code in (403, 404)
    assert len(world.bus.of(JobSubmitted) + world.bus.of(CancelJob) + world.bus.of(ChangeJob)) == before


def test_a_token_of_all_projects_submits_to_none_that_does_not_know_its_holder(world: World) -> None:
    held = world.token("bot", "submitter", ("*",))
    assert "may read project vision" in refused(submit(world, held), 403)
    assert submit(world, held, project="speech").status_code == 202


def test_a_token_of_all_projects_is_bound_by_the_members_of_undeclared_ones_too(world: World) -> None:
    world.submit("nobodys-1", "nobodys")
    held = world.token("bot", "submitter", ("*",))
    declare(world, "*", members={"ana": "submitter"})
    before = len(world.bus.of(JobSubmitted) + world.bus.of(CancelJob) + world.bus.of(ChangeJob))
    try:
        assert world.client.get(f"{JOBS}/nobodys-1", headers=held).status_code == 200, "it reads all"
        assert "may read project nobodys" in refused(submit(world, held, project="nobodys"), 403)
        assert "may read" in refused(world.client.post(f"{JOBS}/nobodys-1/cancel", headers=held), 403)
        assert "may read" in refused(world.client.post(f"{JOBS}/nobodys-1/change", headers=held, json={"priority": 1}), 403)
        assert len(world.bus.of(JobSubmitted) + world.bus.of(CancelJob) + world.bus.of(ChangeJob)) == before
        assert submit(world, held, project="speech").status_code == 202
        assert submit(world, world.token("ana", "submitter", ("*",)), project="nobodys").status_code == 202
    finally:
        declare(world, "*")


@pytest.mark.parametrize("claims", [{"roles": ["maintainer"]}, {"roles": ["submitter", "maintainer"]}, {"roles": []}])
def test_a_role_that_no_token_has_is_no_token(world: World, claims: dict[str, Any]) -> None:
    sound = {"sub": "eve", "roles": ["submitter"], "projects": ["vision"], "jti": "1", "iss": "trainhouse"}
    forged = jwt.encode(sound | claims, KEY, "HS256")
    assert world.client.get(JOBS, headers={"Authorization": f"Bearer {forged}"}).status_code == 401


def test_members_forged_into_a_token_count_for_nothing(world: World) -> None:
    sound = {"sub": "eve", "roles": ["submitter"], "projects": ["vision"], "jti": "1", "iss": "trainhouse"}
    forged = jwt.encode(sound | {"members": {"eve": "maintainer"}, "read_only": [], "hidden": []}, KEY, "HS256")
    assert world.client.get(JOBS, headers={"Authorization": f"Bearer {forged}"}).status_code == 403


def test_operators_look_after_projects_whose_members_they_are_not(world: World) -> None:
    assert submit(world, world.token("ops", "operator")).status_code == 202
    assert submit(world, world.admin(), user="ana").status_code == 202


@pytest.mark.parametrize(("role", "told"), [("submitter", "submitter"), ("operator", "operator"), ("admin", "admin")])
def test_a_gateway_says_with_which_role_it_let_somebody_in_and_nobody_else_does(world: World, role: str, told: str) -> None:
    held = world.token("ana", role)
    assert submit(world, held, purpose="defects", priority=0).status_code == 202
    event: JobSubmitted = world.bus.of(JobSubmitted)[-1]
    assert (event.asked_as, event.spec.user, event.spec.purpose, event.spec.priority) == (told, "ana", "defects", 0), "intake judges these"
    claimed = world.client.post(JOBS, headers=held, json={"spec": SPEC | {"project": "vision"}, "asked_as": "admin"})
    assert claimed.status_code == 422


def test_a_burst_of_requests_is_answered_429_with_how_long_to_wait_and_others_go_on(world: World) -> None:
    declare(world, members=MEMBERS, limits={"requests_per_minute": 5})
    answers = [world.client.get("/v1/whoami", headers=world.token("ana")) for _ in range(8)]
    assert [a.status_code for a in answers] == [200] * 5 + [429] * 3
    assert [a.headers["x-ratelimit-remaining"] for a in answers] == ["4", "3", "2", "1", "0", "0", "0", "0"]
    assert '"project";q=5;w=60' in answers[0].headers["ratelimit-policy"] and '"project";r=4' in answers[0].headers["ratelimit"]
    assert "may ask 5 times a minute" in answers[-1].json()["detail"] and answers[-1].headers["content-type"] == "application/problem+json"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 12
    assert world.client.get("/v1/whoami", headers=world.token("max")).status_code == 429, "another token of the project is the same project"
    assert world.client.get("/v1/whoami", headers=world.token("eve", projects=("speech",))).status_code == 200
    assert world.client.get("/v1/whoami", headers=world.admin()).status_code == 200
    told = [e for e in world.bus.of(AccessRefused) if e.status == 429]
    assert told and told[0].sub == "ana"


def test_a_user_with_many_tokens_is_one_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.gateway.limits, "per_user", 3)
    answers = [world.client.get("/v1/whoami", headers=world.token("ana")).status_code for _ in range(5)]
    assert answers == [200, 200, 200, 429, 429]
    shown = world.client.get("/api/2.0/mlflow/experiments/get?experiment_id=0", headers=world.token("ana"))
    assert shown.status_code == 429 and shown.json()["error_code"] == "REQUEST_LIMIT_EXCEEDED" and shown.headers["retry-after"]


def test_a_burst_of_submissions_is_held_to_the_projects_rate_whoever_sends_them(world: World) -> None:
    declare(world, members=MEMBERS, limits={"submissions_per_minute": 4})
    answers = [submit(world, world.token(who)) for who in ("ana", "max", "ana", "max", "ana", "max")]
    assert [a.status_code for a in answers] == [202] * 4 + [429] * 2
    assert "may submit 4 jobs a minute" in answers[-1].json()["detail"] and int(answers[-1].headers["retry-after"]) <= 15
    restored = world.client.post(f"{JOBS}/{JOB}/checkpoints/1/restore", headers=world.token("ana"))
    assert restored.status_code in (404, 429)


def test_a_full_store_takes_no_files_code_or_jobs_and_says_what_to_do(world: World) -> None:
    stored = {"job_id": JOB, "path": "model.bin", "uri": "s3://b/k", "sha256": "0" * 64, "size_bytes": 3 * 1024**3, "at_ms": NOW_MS}
    world.tables.put(topics.TRACKING, [ArtifactLogged.model_validate(stored)], NOW_MS)
    declare(world, members=MEMBERS, limits={"storage_gib": 2})
    held = world.token("ana")
    for answer in (submit(world, held), world.client.put(f"/v1/code/{'0' * 64}", headers=held, content=b"x")):
        assert "has 3 GiB" in refused(answer, 429) and "may have 2" in refused(answer, 429) and answer.headers["retry-after"] == "60"
    assert world.client.get(f"{JOBS}/{JOB}", headers=held).status_code == 200
    assert submit(world, world.token("eve", projects=("speech",)), project="speech").status_code == 202
    assert submit(world, world.admin()).status_code == 429, "an operator's job takes the project's room too"
    [row] = world.tables.ask("SELECT project, artifact_bytes, over FROM project_storage WHERE project = 'vision'", {})
    assert (row["artifact_bytes"], row["over"]) == (3 * 1024**3, 1)
    declare(world, members=MEMBERS, limits={"storage_gib": 4})
    assert submit(world, held).status_code == 202


def test_what_was_never_declared_is_as_before_unless_the_rule_for_it_says_otherwise(world: World) -> None:
    held = world.token("eve", projects=("nobodys",))
    assert submit(world, held, project="nobodys").status_code == 202
    declare(world, "*", limits={"requests_per_minute": 2})
    try:
        assert [world.client.get("/v1/whoami", headers=held).status_code for _ in range(3)] == [200, 200, 429]
    finally:
        declare(world, "*")


def test_until_it_is_known_what_projects_there_are_nobody_is_let_in(world: World) -> None:
    world.gateway.projects.known = False
    try:
        answer = world.client.get(JOBS, headers=world.admin())
    finally:
        world.gateway.projects.known = True
    assert answer.status_code == 503 and answer.headers["retry-after"]


def test_the_tables_tell_members_purposes_and_who_approved_them(world: World) -> None:
    told = {"defects": {"description": "faults", "approved_by": "ops", "approved_at_ms": NOW_MS}}
    declare(world, members={"ana": "viewer"}, purposes=told, limits={"highest_priority": 7})
    [row] = world.tables.ask("SELECT members, purposes, highest_priority, by_members, set_by FROM projects WHERE project = 'vision'", {})
    assert list(row.values()) == [1, 1, 7, 1, "ops"]
    assert world.tables.ask("SELECT user, role FROM project_members WHERE project = 'vision'", {}) == [{"user": "ana", "role": "viewer"}]
    [purpose] = world.tables.ask("SELECT purpose, description, approved_by FROM project_purposes WHERE project = 'vision'", {})
    assert list(purpose.values()) == ["defects", "faults", "ops"]
    world.submit("vision-2", "vision", purpose="defects")
    assert world.tables.ask("SELECT purpose FROM job_status WHERE job_id = 'vision-2'", {}) == [{"purpose": "defects"}]
    assert world.tables.ask("SELECT purpose FROM jobs WHERE job_id = 'vision-2'", {}) == [{"purpose": "defects"}]


def test_only_who_looks_after_a_project_changes_it_and_limits_are_for_operators(world: World) -> None:
    before = len(world.bus.of(ChangeProject))
    for who in ("ana", "vera"):
        held = world.token(who)
        assert "does not look after" in refused(
            world.client.put("/v1/projects/vision/members/eve", headers=held, json={"role": "viewer"}), 403
        )
        assert "does not look after" in refused(world.client.put("/v1/projects/vision/purposes/x", headers=held, json={}), 403)
        assert "does not look after" in refused(world.client.delete("/v1/projects/vision/members/max", headers=held), 403)
    for path in ("members/eve", "purposes/x"):
        assert world.client.delete(f"/v1/projects/speech/{path}", headers=world.token("max")).status_code == 404
    held = world.token("max")
    assert (
        world.client.put("/v1/projects/vision", headers=held, json={"name": "vision", "limits": {"highest_priority": 0}}).status_code == 403
    )
    assert len(world.bus.of(ChangeProject)) == before
    assert world.client.put("/v1/projects/vision/members/eve", headers=held, json={"role": "viewer"}).status_code == 202
    asked = world.bus.of(ChangeProject)[-1]
    assert asked.user == "max" and asked.project.members["eve"] == "viewer" and asked.replaces is not None
    assert world.client.put("/v1/projects/vision", headers=world.token("ops", "operator"), json={"name": "vision"}).status_code == 202


def test_an_operator_of_one_project_changes_no_other(world: World) -> None:
    held, before = world.token("opa", "operator", projects=("speech",)), len(world.bus.of(ChangeProject))
    for name in ("vision", "*"):
        assert (
            world.client.put(f"/v1/projects/{name}", headers=held, json={"name": name, "members": {"opa": "maintainer"}}).status_code == 404
        )
    assert len(world.bus.of(ChangeProject)) == before


def test_who_may_only_read_stores_no_code(world: World) -> None:
    for path in (f"/v1/code/{'0' * 64}", f"/v1/code/diffs/{'0' * 64}"):
        assert "may only read" in refused(world.client.put(path, headers=world.token("vera"), content=b"x"), 403)


def test_a_viewers_token_of_a_maintainer_changes_nothing(world: World) -> None:
    held = world.token("max", "viewer")
    assert world.client.put("/v1/projects/vision/members/eve", headers=held, json={"role": "maintainer"}).status_code == 403


def test_projects_of_others_are_not_listed(world: World) -> None:
    shown = world.client.get("/v1/projects", headers=world.token("ana")).json()["items"]
    assert [p["name"] for p in shown] == ["vision"]
    assert world.client.get("/v1/projects/speech", headers=world.token("ana")).status_code == 404


def test_a_project_whose_queue_is_full_is_told_when_to_come_again(world: World) -> None:
    declare(world, members=MEMBERS, limits={"queued": 2})
    assert submit(world, world.token()).status_code == 202
    for number in range(2):
        world.submit(f"waits-{number}", "vision", state="PENDING")
    world.gateway.queued._read_s = float("-inf")
    answer = submit(world, world.token())
    told = refused(answer, 429)
    assert "2 waiting jobs in pool default" in told and "limits.queued is 2" in told and int(answer.headers["retry-after"]) > 0
    assert submit(world, world.token(), pool="lab").status_code == 202, "another pool has room"
    assert submit(world, world.token(projects=["speech"]), project="speech").status_code == 202, "another project has no limit"
    world.submit("waits-0", "vision", seq=2, state="RUNNING")
    world.gateway.queued._read_s = float("-inf")
    assert submit(world, world.token()).status_code == 202

    sent_once = world.token() | {"Idempotency-Key": "once"}
    job_id = submit(world, sent_once).json()["job_id"]
    world.submit(job_id, "vision", state="PENDING")
    world.gateway.queued._read_s = float("-inf")
    assert submit(world, world.token()).status_code == 429
    assert submit(world, sent_once).json()["job_id"] == job_id, "sent again, it is the job that waits already"
    [row] = world.tables.ask("SELECT queued, running FROM projects WHERE project = 'vision'", {})
    assert (row["queued"], row["running"]) == (2, None)


class Intake:
    """The real directory on what the gateway passed on; what it makes public goes to the gateway and the tables."""

    def __init__(self, world: World) -> None:
        self.world, self.machine = world, DirectoryMachine()
        self.folded, self.offset = begin(self.machine, 0), 0
        self.proposer = Proposer(self.machine, "o", input_topic=topics.ADMISSION)

    def take(self, event: ProjectApplied | ChangeProject, event_id: str, topic: str = topics.JOBS) -> None:
        value = encode(envelope_of(event, id=event_id, source="trainhouse/gateway", now_ms=NOW_MS))
        if topic == topics.JOBS:
            self.put(topic, event.subject().encode(), value, HEADERS)
            passed_on = event.model_copy(update={"admission_partitions": 4})  # as intake fills it in
            value = encode(envelope_of(passed_on, id=event_id, source="trainhouse/gateway", now_ms=NOW_MS))
        made = self.proposer.propose(self.folded, NOW_MS, [pending(self.offset, value, HEADERS, Limits())], 0, tick=False)
        assert made is not None
        self.offset += 1
        self.folded, _ = fold_bytes(self.machine, self.folded, made.value)
        for out in made.published:
            if out.topic == topics.PROJECTS:
                self.put(out.topic, out.key, out.value, out.headers)
                applied = decode(out.value, out.headers).event
                assert isinstance(applied, ProjectApplied)
                self.world.gateway.projects.put(applied)
            elif out.topic in (topics.STATUS, topics.DEAD_LETTERS):
                self.put(out.topic, out.key, out.value, out.headers)

    def put(self, topic: str, key: bytes, value: bytes, headers: Any) -> None:
        self.world.tables.put_records([Record(topic, 0, next(_offsets), NOW_MS, key, value, tuple(headers))])

    def declared(self, name: str, version: int) -> None:
        about = {"project": {"name": name, "members": MEMBERS}, "version": version, "user": "ops", "applied_at_ms": NOW_MS}
        applied = ProjectApplied.model_validate(about)
        self.take(applied, f"project:{name}:{version}", topics.ADMISSION)
        self.world.gateway.projects.put(applied)


_offsets = itertools.count(1_000)


def asked(world: World, name: str, user: str) -> tuple[dict[str, Any], ChangeProject]:
    """A change that is on the bus: the gateway's answer, and the event."""
    held = world.token("ops", "operator", projects=("*",))
    answer = world.client.put(f"/v1/projects/{name}/members/{user}", headers=held, json={"role": "viewer"})
    assert answer.status_code == 202, answer.text
    return answer.json(), world.bus.of(ChangeProject)[-1]


def outcome(world: World, name: str, answer: dict[str, Any], held: dict[str, str] | None = None) -> Any:
    headers = held or world.token("ops", "operator", projects=("*",))
    return world.client.get(f"/v1/projects/{name}/changes/{answer['event_id']}", headers=headers, params={"after": answer["after"]})


def test_a_change_that_the_directory_could_not_handle_is_refused_at_once_with_the_reason(world: World) -> None:
    intake = Intake(world)
    intake.declared("edge", MOST_SMALL)  # no version comes after this one
    answer, change = asked(world, "edge", "eve")
    intake.take(change, answer["event_id"])
    found = outcome(world, "edge", answer).json()
    assert "handling it failed: ValidationError" in found["refused"] and "version" in found["refused"]
    assert (found["project"], found["event_id"], found["version"]) == ("edge", answer["event_id"], None)


def test_of_two_changes_from_one_version_each_has_its_own_outcome(world: World) -> None:
    intake = Intake(world)
    intake.declared("twice", 3)
    (first, one), (second, two) = asked(world, "twice", "bo"), asked(world, "twice", "cy")
    intake.take(one, first["event_id"])
    assert outcome(world, "twice", second).status_code == 503, "the request cannot be read yet"
    intake.take(two, second["event_id"])
    won, lost = outcome(world, "twice", first).json(), outcome(world, "twice", second).json()
    assert (won["refused"], won["version"]) == (None, 4)
    assert "is at version 4, and this was made from version 3" in lost["refused"] and lost["version"] is None


def test_a_change_that_counted_says_so_though_the_project_was_changed_again_since(world: World) -> None:
    intake, held = Intake(world), world.token("ops", "operator", projects=("*",))
    intake.declared("since", 1)
    purposes = {"line": {"description": "faults"}, "env": {"description": "a word that is masked elsewhere"}}
    limits = {"highest_priority": 3, "storage_gib": 0.1, "running": 2, "cost_per_month": 10.5}
    body = {"name": "since", "description": "d", "purposes": purposes, "limits": limits}
    first = world.client.put("/v1/projects/since", headers=held, json=body).json()
    intake.take(world.bus.of(ChangeProject)[-1], first["event_id"])
    second = world.client.put("/v1/projects/since/purposes/safety", headers=held, json={}).json()
    intake.take(world.bus.of(ChangeProject)[-1], second["event_id"])
    third = world.client.put("/v1/projects/since/purposes/safety", headers=held, json={}).json()
    intake.take(world.bus.of(ChangeProject)[-1], third["event_id"])
    found = [outcome(world, "since", answer).json() for answer in (first, second, third)]
    assert [(f["refused"], f["version"]) for f in found] == [(None, 2), (None, 3), (None, 3)], "the third found all as it asked"


def test_the_outcome_of_a_change_is_of_its_project_alone(world: World) -> None:
    intake = Intake(world)
    intake.declared("own", 1)
    answer, change = asked(world, "own", "eve")
    intake.take(change, answer["event_id"])
    assert outcome(world, "own", answer, world.token("vera", projects=("vision",))).status_code == 404
    assert outcome(world, "vision", answer).status_code == 404
    assert outcome(world, "own", answer | {"event_id": "never"}).status_code == 404
    assert outcome(world, "own", answer, world.token("vera", projects=("own",))).json()["version"] == 2
