"""What somebody may try at admission to get more of a project than it was given, against the directory's own machine.

Each test is a door: the purpose of another project, priority 0, a burst, a name that is no member's, an order of events that overtakes the
rule, a partition that has not decided about the project itself.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.events import (
    ChangeJob,
    ChangeProject,
    Envelope,
    Event,
    EventId,
    JobAdmitted,
    JobStatus,
    JobSubmitted,
    PoolCreated,
    ProjectApplied,
    ProjectLimited,
    decode,
    encode,
    envelope_of,
)
from trainhouse.events.wire import topics
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.directory_state import DirectoryState
from trainhouse.scheduler.core.intake.screening import Arrived, screen
from trainhouse.scheduler.core.protocol.machine import Effect, Input

PARTITIONS = 3
VISION = {
    "name": "vision",
    "members": {"ana": "submitter", "vera": "viewer", "max": "maintainer"},
    "purposes": {"defects": "faults on the line", "safety": "people near machines"},
    "limits": {"highest_priority": 20},
}
SPEECH = {"name": "speech", "purposes": {"captions": "of public talks"}}


class Directories:
    """All partitions of the directory, with admission between them; each event is decided, folded and published at once."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.machine = DirectoryMachine(control_partitions=4)
        self.states: list[DirectoryState] = [self.machine.initial(p) for p in range(partitions)]
        self.now_ms, self.count = 1_000_000, 0
        for p in range(partitions):
            self.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}), p)

    def feed(self, event: Event, partition: int = 0, event_id: str = "") -> list[Effect]:
        """One event at a partition; what it makes for the others reaches them, what it makes public is given."""
        self.count += 1
        inputs = [Input(self.count, Envelope(EventId(event_id or f"e{self.count}"), "test", event, time_ms=5))]
        state = self.states[partition]
        before = self.machine.dump(state)
        decisions = self.machine.decide(state, self.now_ms, inputs)
        assert decisions == self.machine.decide(self.machine.load(before), self.now_ms, inputs), "a reloaded state decides otherwise"
        self.states[partition] = self.machine.fold(state, self.now_ms, inputs, decisions)
        public = []
        for effect in self.machine.effects(self.count, self.now_ms, inputs, decisions):
            if effect.topic == topics.ADMISSION:
                assert effect.partition is not None
                public += self.feed(effect.event, effect.partition, f"{effect.event_id}:{effect.partition}")
            else:
                public.append(effect)
        return public

    def declare(self, project: dict[str, Any], **more: Any) -> list[Effect]:
        """A project as an operator asks for it, at the partition that decides about it."""
        asked = {"project": project, "user": "ops", "admission_partitions": len(self.states)} | more
        return self.feed(ChangeProject.model_validate(asked), len(project["name"]) % len(self.states))

    def submit(self, job_id: str, partition: int = 0, asked_as: str | None = None, **fields: Any) -> str:
        """Why a submission is refused; empty when it is admitted."""
        spec = {"runtime": {"command": ["x"]}, "project": "vision", "purpose": "defects", "user": "ana"} | fields
        spec = {name: value for name, value in spec.items() if value is not None}
        asked = JobSubmitted.model_validate({"job_id": job_id, "spec": spec, "asked_as": asked_as})
        return reason_of(self.feed(asked, partition))


def reason_of(effects: list[Effect]) -> str:
    """The one refusal among effects, or nothing."""
    told = [e.event.reason for e in effects if isinstance(e.event, JobStatus)]
    if told:
        return told[0]
    assert any(isinstance(e.event, JobAdmitted | ChangeJob | ProjectApplied) for e in effects) or not effects
    return ""


@pytest.fixture
def there() -> Directories:
    made = Directories()
    made.declare(VISION)
    made.declare(SPEECH)
    return made


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_a_purpose_of_another_project_is_refused_everywhere(there: Directories, partition: int) -> None:
    reason = there.submit("j1", partition, purpose="captions")
    assert "spec.purpose" in reason and "captions" in reason and "defects, safety" in reason
    assert "not approved" in there.submit("j2", partition, project="speech", purpose="defects")
    assert there.submit("j3", partition) == ""


def test_no_purpose_is_refused_where_the_project_has_any(there: Directories) -> None:
    assert "needs to know what a job is for" in there.submit("j1", purpose=None)


def test_a_purpose_that_was_revoked_is_refused(there: Directories) -> None:
    there.declare(VISION | {"purposes": {"safety": "people near machines"}})
    for partition in range(PARTITIONS):
        assert "not approved" in there.submit(f"j{partition}", partition)


@pytest.mark.parametrize("priority", [0, 1, 19])
def test_a_priority_above_the_projects_is_refused(there: Directories, priority: int) -> None:
    reason = there.submit("j1", 1, priority=priority)
    assert "priority" in reason and "20" in reason
    assert there.submit("j2", 1, priority=20) == ""


def test_priority_0_is_not_everybodys_in_a_project_that_says_nothing_of_it(there: Directories) -> None:
    assert "highest is 1" in there.submit("j1", project="speech", purpose="captions", priority=0)
    there.declare(SPEECH | {"limits": {"highest_priority": 0}})
    assert there.submit("j2", project="speech", purpose="captions", priority=0) == ""


def test_a_priority_is_not_raised_afterwards_nor_by_a_change_that_overtakes_its_job(there: Directories) -> None:
    assert there.submit("j1") == ""
    change = ChangeJob.model_validate({"job_id": "j1", "priority": 0})
    assert "highest is 20" in reason_of(there.feed(change))
    assert reason_of(there.feed(ChangeJob.model_validate({"job_id": "j1", "priority": 20}))) == ""
    assert there.feed(ChangeJob.model_validate({"job_id": "j2", "priority": 0})) == []
    assert "highest is 20" in there.submit("j2"), "the change that waited for its job is refused when the job comes"


def test_a_default_projects_priority_is_bounded_when_it_is_declared(there: Directories) -> None:
    assert there.submit("j1", project="default", purpose=None) == ""
    there.declare({"name": "default"})
    assert "highest is 1" in reason_of(there.feed(ChangeJob.model_validate({"job_id": "j1", "priority": 0})))


@pytest.mark.parametrize(
    ("user", "asked_as", "admitted"),
    [
        ("ana", "submitter", True),
        ("max", "submitter", True),
        ("vera", "submitter", False),
        ("eve", "submitter", False),
        ("eve", "viewer", False),
        ("eve", "admin", True),
        ("eve", "operator", True),
        ("eve", None, True),
        ("eve", "Admin", False),
        ("eve", "root", False),
    ],
)
def test_whom_a_gateway_vouches_for_must_be_a_member_who_may_submit(
    there: Directories, user: str, asked_as: str | None, admitted: bool
) -> None:
    reason = there.submit("j1", 2, asked_as, user=user)
    assert (reason == "") is admitted
    assert admitted or f"spec.user: {user}" in reason


def test_of_a_project_without_members_nobody_is_one(there: Directories) -> None:
    there.declare(VISION | {"members": {}})
    assert "no member" in there.submit("j1", 1, "submitter")
    assert there.submit("j2", 1, "operator") == ""


def test_a_removed_member_is_refused_at_every_partition(there: Directories) -> None:
    there.declare(VISION | {"members": {"max": "maintainer"}})
    for partition in range(PARTITIONS):
        assert "no member" in there.submit(f"j{partition}", partition, "submitter")


def test_a_closed_project_and_with_the_rule_every_undeclared_one_take_no_job(there: Directories) -> None:
    assert there.submit("j1", project="nobodys", purpose=None) == ""
    there.declare({"name": "*", "closed": True})
    assert "there is no project nobodys" in there.submit("j2", project="nobodys", purpose=None)
    assert there.submit("j3") == ""
    there.declare(VISION | {"closed": True})
    assert "is closed" in there.submit("j4", 2)


def test_a_burst_is_held_to_the_projects_rate(there: Directories) -> None:
    there.declare(SPEECH | {"limits": {"submissions_per_minute": 6}})
    here = {"project": "speech", "purpose": "captions"}
    reasons = [there.submit(f"j{n}", 1, **here) for n in range(50)]
    assert reasons.count("") == 6
    assert "6 jobs a minute" in reasons[-1] and "submit again in" in reasons[-1]
    assert there.submit("j0", 1, **here) == "", "the same submission again is the same job, whatever the rate"
    there.now_ms += 30_000
    assert [there.submit(f"k{n}", 1, **here) for n in range(5)].count("") == 1, "each partition refills its share"


def test_over_time_all_partitions_together_let_no_more_through_than_the_rate(there: Directories) -> None:
    there.declare(SPEECH | {"limits": {"submissions_per_minute": 60}})
    admitted = 0
    for turn in range(600):
        there.now_ms += 1_000
        for partition in range(PARTITIONS):
            admitted += there.submit(f"j{turn}-{partition}", partition, project="speech", purpose="captions") == ""
    assert admitted <= PARTITIONS * 60 + 10 * 60


def test_a_stale_change_does_not_undo_a_newer_one(there: Directories) -> None:
    there.declare(VISION | {"members": {"max": "maintainer"}}, replaces=1)
    assert "is at version 2" in reason_of(there.declare(VISION, replaces=1))
    assert "no member" in there.submit("j1", 2, "submitter")


def test_an_old_word_about_a_project_that_comes_again_changes_nothing(there: Directories) -> None:
    [first] = [s.projects["vision"] for s in there.states[:1]]
    there.declare(VISION | {"members": {"max": "maintainer"}})
    assert there.feed(first, 2, "again") == []
    assert "no member" in there.submit("j1", 2, "submitter")


def test_an_approval_is_not_the_requests_to_claim(there: Directories) -> None:
    forged = {"description": "anything", "approved_by": "the ethics board", "approved_at_ms": 1}
    there.declare(VISION | {"purposes": {"weapons": forged}}, user="eve")
    [purpose] = there.states[0].projects["vision"].project.purposes.values()
    assert (purpose.approved_by, purpose.approved_at_ms) == ("eve", there.now_ms)


def test_an_approval_stays_who_gave_it_and_a_purpose_that_was_rewritten_needs_a_new_one(there: Directories) -> None:
    first_ms = there.now_ms
    there.now_ms += 5_000
    there.declare(VISION | {"purposes": {"defects": "faults on the line", "safety": "something else"}}, user="eve")
    found = there.states[1].projects["vision"].project.purposes
    assert (found["defects"].approved_by, found["defects"].approved_at_ms) == ("ops", first_ms)
    assert (found["safety"].approved_by, found["safety"].approved_at_ms) == ("eve", there.now_ms)


def test_outsiders_cannot_say_what_a_project_is_nor_how_far_it_is_known() -> None:
    told = ProjectApplied.model_validate({"project": VISION, "version": 99, "applied_at_ms": 1})
    [letter] = screen(_arrived(told), PARTITIONS, 1).outgoing
    assert letter.topic == topics.DEAD_LETTERS
    asked = ChangeProject.model_validate({"project": VISION, "admission_partitions": 1000})
    [out] = screen(_arrived(asked), PARTITIONS, 1).outgoing
    event = decode(out.value, out.headers).event
    assert isinstance(event, ChangeProject) and event.admission_partitions == PARTITIONS


def test_a_request_about_a_project_that_cannot_be_read_is_answered() -> None:
    value = encode(envelope_of(ChangeProject.model_validate({"project": VISION}), id="ask-1", source="x", now_ms=1))
    out = screen(Arrived(0, 0, 1, value.replace(b'"viewer"', b'"emperor"')), PARTITIONS, 1).outgoing
    assert [o.topic for o in out] == [topics.DEAD_LETTERS, topics.STATUS] and out[1].key == b"ask-1"


def _arrived(event: Event) -> Arrived:
    return Arrived(0, 0, 1, encode(envelope_of(event, id="x-1", source="outside", now_ms=1)))


changes = st.builds(
    lambda members, purposes, highest, rate, closed: {
        "name": "vision",
        "members": members,
        "purposes": dict.fromkeys(purposes, ""),
        "limits": {"highest_priority": highest, "submissions_per_minute": rate},
        "closed": closed,
    },
    st.none() | st.dictionaries(st.sampled_from(["ana", "bo"]), st.sampled_from(["viewer", "submitter"]), max_size=2),
    st.sets(st.sampled_from(["p", "q"])),
    st.sampled_from([0, 50]),
    st.none() | st.integers(1, 3),
    st.booleans(),
)
asks = st.tuples(
    st.sampled_from(["ana", "bo"]),
    st.sampled_from([None, "p", "q"]),
    st.sampled_from([0, 50]),
    st.sampled_from([None, "submitter", "admin"]),
)
moves = st.lists(st.tuples(st.one_of(changes, asks, st.just(None)), st.integers(0, 2), st.sampled_from([0, 20_000, 90_000])), max_size=30)


@settings(max_examples=examples(60))
@given(moves)
def test_whatever_is_admitted_was_the_projects_to_ask_for(steps: list[tuple[Any, int, int]]) -> None:
    there, now, admitted_at = Directories(), None, list[int]()
    for number, (move, partition, pause_ms) in enumerate(steps):
        there.now_ms += pause_ms
        if move is None:
            there.feed(ClockTicked(), partition)
        elif isinstance(move, dict):
            there.declare(move)
            now, admitted_at = move, []
            assert len({s.projects["vision"].version for s in there.states}) == 1, "partitions are of one mind"
        else:
            user, purpose, priority, asked_as = move
            taken = there.submit(f"j{number}", partition, asked_as, user=user, purpose=purpose, priority=priority) == ""
            if now is None:
                assert taken
                continue
            if taken:
                admitted_at.append(there.now_ms)
                assert not now["closed"]
                assert priority >= now["limits"]["highest_priority"]
                assert purpose in now["purposes"] if now["purposes"] else purpose is None
                assert asked_as in (None, "admin") or now["members"] is None or now["members"].get(user) == "submitter"
            rate = now["limits"]["submissions_per_minute"]
            if rate:
                minute = [t for t in admitted_at if t > there.now_ms - 60_000]
                assert len(minute) <= PARTITIONS * rate + rate


def limits_of(effects: list[Effect]) -> dict[str, tuple[int | None, int | None, list[int | None]]]:
    """What schedulers are told, by project: how many may run and wait, and to which partitions it goes."""
    found: dict[str, tuple[int | None, int | None, list[int | None]]] = {}
    for effect in effects:
        if isinstance(effect.event, ProjectLimited):
            assert effect.topic == topics.CONTROL
            *_, where = found.setdefault(effect.event.project, (effect.event.running, effect.event.queued, []))
            where.append(effect.partition)
    return found


def test_limits_of_jobs_are_told_to_every_scheduler_also_when_they_end(there: Directories) -> None:
    everywhere = [0, 1, 2, 3]
    assert limits_of(there.declare(VISION | {"limits": {"running": 3, "queued": 9}})) == {"vision": (3, 9, everywhere)}
    assert limits_of(there.declare(VISION | {"limits": {"queued": 9}})) == {"vision": (None, 9, everywhere)}
    assert limits_of(there.declare(VISION)) == {"vision": (None, None, everywhere)}
    assert limits_of(there.declare(VISION)) == {}, "nothing changed"


def test_a_rule_for_undeclared_projects_names_those_that_it_does_not_hold_for(there: Directories) -> None:
    partition = len("*") % len(there.states)
    for name in ("visi", "spee"):  # decided by the partition that decides about the rule
        there.feed(ChangeProject.model_validate({"project": {"name": name}, "admission_partitions": PARTITIONS}), partition)
    told = limits_of(there.declare({"name": "*", "limits": {"running": 1}}))
    assert told["*"][:2] == (1, None) and {"vision", "speech", "visi", "spee"} <= told.keys()
    assert limits_of(there.declare({"name": "*", "limits": {"running": 2}})).keys() == {"*"}


def reject_of(effects: list[Effect]) -> str:
    """Why a change is refused; empty where it counts."""
    return next((e.event.reason for e in effects if isinstance(e.event, JobStatus)), "")


def test_a_rule_that_is_too_large_is_refused_with_its_size(there: Directories) -> None:
    for asked in ({"text": "# " + "x" * 60_000}, {"project": VISION | {"purposes": {f"p{n}": "x" * 1_000 for n in range(60)}}}):
        reason = reject_of(there.declare(VISION, **asked) if "text" in asked else there.declare(asked["project"]))
        assert reason.startswith("project vision: ") and "bytes, and at most 49152" in reason and "shorter" in reason
    assert {state.projects["vision"].version for state in there.states} == {1}
    members = {f"person-{n}@example.org": "submitter" for n in range(512)}
    assert reject_of(there.declare(VISION | {"members": members}, text="members:\n" + "  - someone\n" * 512)) == "", "a large team has room"


def test_all_rules_together_have_a_bound(there: Directories) -> None:
    big = "x" * 45_000
    reasons = [reject_of(there.declare({"name": f"p{n:04}"}, text=big)) for n in range(120)]
    taken = reasons.index(next(r for r in reasons if r))
    assert 4_000_000 < taken * len(big) < 4_300_000
    assert "all projects together" in reasons[taken] and all(reasons[taken:])
    assert all(len(there.machine.dump(state)) < 5_000_000 for state in there.states)
    assert reject_of(there.declare({"name": "p0000"}, text="short")) == "", "who makes room may"


def test_a_rule_of_before_the_bound_may_shrink_and_its_members_be_removed() -> None:
    there = Directories(1)
    before = ProjectApplied.model_validate(
        {"project": VISION | {"name": "v"}, "version": 3, "text": "x" * 60_000, "applied_at_ms": 1, "admission_partitions": 1}
    )
    there.feed(before)
    assert there.states[0].projects["v"].text == before.text
    fewer = VISION | {"name": "v", "members": {"ana": "submitter"}}
    assert reject_of(there.declare(fewer, text="x" * 59_990)) == ""
    assert "bytes" in reject_of(there.declare(fewer, text="x" * 60_001))
