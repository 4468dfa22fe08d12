"""What is refused before a job is admitted: another project's secret, and secrets in `env`; neither is told on with its value."""

import random

import pytest

from trainhouse.client import InvalidSpecError, TrainhouseClient
from trainhouse.client.client import spec_of
from trainhouse.events import (
    Event,
    JobRejected,
    JobSpec,
    JobSubmitted,
    PoolCreated,
    SecretDeclared,
    SecretRemoved,
    decode,
    envelope_of,
)
from trainhouse.events.model.routing import JobDirected
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.events.wire.topics import ADMISSION, DEAD_LETTERS
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.directory_state import DirectoryState
from trainhouse.scheduler.core.intake.screening import Arrived, screen
from trainhouse.scheduler.core.protocol.machine import Input

VALUE = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG3hJ"  # pragma: allowlist secret
POOL = PoolCreated(pool="default", partition=0)  # type: ignore[arg-type]


def submitted(project: str, *secrets: str, job: str = "j", **fields: object) -> JobSubmitted:
    spec = {"project": project, "secrets": secrets, "runtime": {"command": ["python"]}, **fields}
    return JobSubmitted(job_id=job, spec=JobSpec.model_validate(spec))  # type: ignore[arg-type]


class Directory:
    """A directory that is fed events; through its snapshot after each, as after a restart."""

    def __init__(self, *events: Event) -> None:
        self.machine = DirectoryMachine()
        self.state: DirectoryState = self.machine.initial(0)
        self.count = 0
        for event in events:
            self.take(event)

    def take(self, event: Event) -> list[Event]:
        self.count += 1
        envelope = envelope_of(event, id=f"e{self.count}", source="t", now_ms=self.count)
        inputs = [Input(self.count, envelope)]
        decisions = self.machine.decide(self.state, self.count, inputs)
        self.state = self.machine.fold(self.state, self.count, inputs, decisions)
        self.state = self.machine.load(self.machine.dump(self.state))
        return decisions

    def refusal(self, event: JobSubmitted) -> str:
        decisions = self.take(event)
        rejected = [d.reason for d in decisions if isinstance(d, JobRejected)]
        assert bool(rejected) != any(isinstance(d, JobDirected) for d in decisions)
        return rejected[0] if rejected else ""


@pytest.mark.parametrize("wanted", ["vision/HUB_TOKEN", "HUB_TOKEN", "default/HUB_TOKEN"])
def test_another_projects_secret_is_refused_with_the_way_out(wanted: str) -> None:
    owner = "vision" if wanted.startswith("vision") else "default"
    directory = Directory(POOL, SecretDeclared(project=owner, name="HUB_TOKEN"))
    told = directory.refusal(submitted("speech", wanted))
    shown = "vision/HUB_TOKEN" if owner == "vision" else "HUB_TOKEN"
    assert f"`trainhouse secrets grant {shown} --to speech`" in told and f"belongs to project {owner}" in told


def test_grants_open_and_their_end_closes() -> None:
    directory = Directory(POOL, SecretDeclared(project="vision", name="HUB_TOKEN", grants=("speech",)))
    assert directory.refusal(submitted("speech", "vision/HUB_TOKEN", job="a")) == ""
    assert directory.refusal(submitted("vision", "HUB_TOKEN", job="b")) == ""
    directory.take(SecretDeclared(project="vision", name="HUB_TOKEN"))
    assert directory.refusal(submitted("speech", "vision/HUB_TOKEN", job="c"))
    directory.take(SecretRemoved(project="vision", name="HUB_TOKEN"))
    assert directory.refusal(submitted("speech", "vision/HUB_TOKEN", job="d")) == ""  # not known here any more: its agent judges


def test_what_was_admitted_stays_the_same_job_after_a_revocation() -> None:
    directory = Directory(POOL, SecretDeclared(project="vision", name="T", grants=("speech",)))
    first = submitted("speech", "vision/T")
    assert directory.refusal(first) == ""
    directory.take(SecretDeclared(project="vision", name="T"))
    assert not [d for d in directory.take(first) if isinstance(d, JobRejected | JobDirected)]


def test_without_declarations_everything_is_as_before() -> None:
    directory = Directory(POOL)
    assert directory.refusal(submitted("speech", "HUB_TOKEN", "vision/OTHER")) == ""
    assert b"secrets" not in directory.machine.dump(directory.state)


def test_whatever_the_order_a_job_gets_no_secret_that_is_declared_and_not_its_own() -> None:
    """Seeded: declarations, grants, removals and submissions in any order, judged by a model of a few lines."""
    for seed in range(40):
        drawn, directory, known = random.Random(seed), Directory(POOL), {}
        for number in range(40):
            owner, project, name = drawn.choice("ab"), drawn.choice("abc"), drawn.choice("XY")
            what = drawn.random()
            if what < 0.3:
                known[owner, name] = tuple(drawn.sample("abc", drawn.randint(0, 2)))
                directory.take(SecretDeclared(project=owner, name=name, grants=known[owner, name]))
            elif what < 0.4:
                known.pop((owner, name), None)
                directory.take(SecretRemoved(project=owner, name=name))
            else:
                refused = bool(directory.refusal(submitted(project, f"{owner}/{name}", job=f"j{number}")))
                expected = (owner, name) in known and owner != project and project not in known[owner, name]
                assert refused == expected, (seed, number)


def arrived(value: bytes) -> Arrived:
    return Arrived(0, 7, 1, value)


def test_a_declaration_reaches_every_part_of_the_directory() -> None:
    event = SecretDeclared(project="vision", name="T")
    told = screen(arrived(encode(envelope_of(event, id="e", source="t", now_ms=1))), 8, 1).outgoing
    assert [(o.topic, o.partition) for o in told] == [(ADMISSION, n) for n in range(8)]


def test_a_secret_in_env_is_rejected_and_its_value_told_on_nowhere() -> None:
    event = submitted("vision", env={"HF_TOKEN": VALUE, "A": "1"})
    out = screen(arrived(encode(envelope_of(event, id="e", source="t", now_ms=1))), 8, 1)
    letter, status = out.outgoing
    assert letter.topic == DEAD_LETTERS and not out.own_failure
    reason = decode(status.value, dict(status.headers)).event.reason  # type: ignore[attr-defined]
    assert "HF_TOKEN looks like a secret" in reason and "trainhouse secrets set vision/HF_TOKEN" in reason
    assert VALUE not in repr(out) and VALUE.encode() not in b"".join([o.value for o in out.outgoing])


def test_an_env_that_cannot_be_read_is_told_on_without_its_values() -> None:
    for env in (b'{"PIN": 84718471}', b'["PIN=84718471"]', b'"PIN=84718471"', b'{"PIN": "84718471"'):
        value = (
            b'{"specversion":"1.0","id":"e","source":"t","type":"trainhouse.job.submitted.v1","data":{"job_id":"j","spec":{"env": ' + env
        )
        out = screen(arrived(value + b', "runtime": {"command": ["python"]}}}}'), 8, 1)
        assert b"84718471" not in b"".join([o.value + repr(o.headers).encode() for o in out.outgoing]), env


def test_a_variable_that_is_allowed_is_admitted() -> None:
    event = submitted("vision", env={"HF_TOKEN": "none-needed"}, env_allow=["HF_TOKEN"])
    out = screen(arrived(encode(envelope_of(event, id="e", source="t", now_ms=1))), 8, 1)
    assert [o.topic for o in out.outgoing] == [ADMISSION]


class Never:
    """A way in that must not be taken."""

    user = "ada"
    place = "nowhere"

    def submit(self, *arguments: object) -> None:
        raise AssertionError("it was sent")


def test_the_client_does_not_even_send_it() -> None:
    client = TrainhouseClient(Never())  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecError, match="DB_PASSWORD looks like a secret") as refused:
        client.submit(command=["python"], env={"DB_PASSWORD": "84718471"})
    assert "84718471" not in str(refused.value)
    with pytest.raises(InvalidSpecError, match="HF_TOKEN"):
        client.submit(spec_of({"runtime": {"command": ["python"]}, "env": {"HF_TOKEN": VALUE}}))


def test_a_spec_that_is_not_valid_is_told_without_values_of_env() -> None:
    with pytest.raises(InvalidSpecError) as refused:
        spec_of({"runtime": {"command": ["python"]}, "env": {"PIN": 84718471}})
    assert "84718471" not in str(refused.value)


def test_time_alone_decides_nothing_about_secrets() -> None:
    directory = Directory(POOL, SecretDeclared(project="vision", name="T"))
    assert directory.take(ClockTicked()) == []
