"""Grants of datasets: who may be given one, which jobs they admit, how every partition learns of them, and what is audited."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dataset_versions import manifest, publish, version
from tests.unit.scheduler.core.intake.test_core_directory import Directory, refused, submit
from tests.unit.scheduler.core.intake.test_directory_datasets import admitted
from trainhouse.events import (
    ChangeProject,
    DatasetAccessRefused,
    DatasetGranted,
    DatasetGrantRevoked,
    DatasetVersion,
    DeprecateDataset,
    GrantDataset,
    JobStatus,
    QuarantineShard,
    RevokeDatasetGrant,
    ShardEvidence,
    ShardFault,
    envelope_of,
)
from trainhouse.events.model.dataset import DataField, schema_hash_of, version_of
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import decode, encode
from trainhouse.events.wire.project_topics import jobs_topic, status_topic
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.intake import datasets as datasets_module
from trainhouse.scheduler.core.intake import grant_rules
from trainhouse.scheduler.core.intake.directory import GRANTS_SINCE, DirectoryMachine
from trainhouse.scheduler.core.intake.screening import Arrived, screen

ONE = version(project="speech", purposes=("research", "teaching"))
TWO = version(project="speech", licence="MIT")
MISSING = ShardEvidence(fault=ShardFault.MISSING)


def grant(sha256: str | None = ONE.sha256, project: str = "vision", purpose: str = "research", partitions: int = 1) -> GrantDataset:
    return GrantDataset(
        dataset="speech",
        sha256=sha256,
        project=project,
        purpose=purpose,
        user="ada",
        reason="a joint paper",
        admission_partitions=partitions,
    )


def revoke(sha256: str | None = ONE.sha256, project: str = "vision", purpose: str = "research") -> RevokeDatasetGrant:
    return RevokeDatasetGrant(dataset="speech", sha256=sha256, project=project, purpose=purpose, user="bo", reason="it ended")


def world() -> Directory:
    """A dataset of project speech with two versions, and two other projects."""
    directory = Directory().with_pools()
    for name in ("speech", "vision", "robots"):
        directory.feed(ChangeProject.model_validate({"project": {"name": name, "purposes": {}}, "admission_partitions": 1}))
    directory.feed(publish(ONE, "1.0.0"))
    directory.feed(publish(TWO, "1.1.0"))
    return directory


def job(name: str, reference: str = "speech@1.0.0", project: str = "vision", purpose: str | None = "research", **more: Any) -> Any:
    return submit(name, project=project, data={"dataset": reference} | ({"purpose": purpose} if purpose else {}) | more)


def why(directory: Directory, event: Any) -> str:
    """The refusal of a job for want of a grant, which is audited."""
    audited, status = directory.feed(event)
    assert audited.topic == topics.AUDIT and isinstance(audited.event, DatasetAccessRefused)
    reason = refused([status])
    assert (audited.event.reason, audited.event.job_id, audited.event.owner) == (reason, event.job_id, "speech")
    assert (audited.event.project, audited.event.submission_id) == (event.spec.project, status.key)
    return reason


def test_a_job_of_another_project_needs_a_grant_and_reads_as_its_owner_names_it() -> None:
    directory = world()
    reason = why(directory, job("a"))
    assert "project vision holds no grant of speech@1.0.0 for purpose research" in reason
    assert "`trainhouse data grant speech@1.0.0 --project vision --purpose research`" in reason
    effects = directory.feed(grant(partitions=3))
    assert [(e.topic, e.partition) for e in effects] == [*((topics.ADMISSION, n) for n in range(3)), (topics.DATASETS, None)]
    decided = effects[-1].event
    assert isinstance(decided, DatasetGranted) and (decided.owner, decided.user, decided.reason) == ("speech", "ada", "a joint paper")
    spec = admitted(directory.feed(job("b"))).spec
    assert spec.data is not None and spec.data.owner == "speech" and spec.data.dataset == f"speech@sha256:{ONE.sha256}"
    directory.feed(grant(project="default"))
    by_purpose = admitted(directory.feed(submit("c", purpose="research", data={"dataset": "speech@1.0.0"})))
    assert by_purpose.spec.data is not None and by_purpose.spec.data.owner == "speech"


def test_a_grant_binds_version_project_and_purpose() -> None:
    directory = world()
    directory.feed(grant())
    held = f"it holds: speech@sha256:{ONE.sha256} for research. Its owner, project speech, gives one:"
    for event in (job("a", "speech@1.1.0"), job("b", purpose="teaching"), job("c", "speech@3.0.0"), job("d", f"speech@sha256:{'f' * 64}")):
        assert held in why(directory, event)
    assert "there is no dataset speech" in why(directory, job("e", project="robots"))
    assert f"each for a purpose: name one as data.purpose, or as purpose of the job. It holds: {ONE.name} for research" in why(
        directory, job("f", purpose=None)
    )
    assert admitted(directory.feed(job("g", str(ONE.name))))


def test_a_grant_of_all_versions_takes_later_ones_as_far_as_their_own_purposes_go() -> None:
    directory = world()
    directory.feed(grant(sha256=None, purpose="adverts"))
    assert admitted(directory.feed(job("a", "speech@1.1.0", purpose="adverts")))
    assert "adverts is none of the purposes that speech@1.0.0 may be used for" in refused(directory.feed(job("b", purpose="adverts")))
    later = version(project="speech", licence="GPL")
    directory.feed(publish(later, "2.0.0"))
    assert admitted(directory.feed(job("c", "speech@2.0.0", purpose="adverts")))
    assert "has no version 3.0.0; it has:" in refused(directory.feed(job("d", "speech@3.0.0", purpose="adverts")))


def test_the_owners_jobs_need_none_and_are_as_they_were() -> None:
    directory = world()
    spec = admitted(directory.feed(job("a", project="speech", owner="robots"))).spec
    assert spec.data is not None and spec.data.owner is None, "whatever a spec says itself"
    assert "owner" not in spec.data.model_dump()
    assert "belongs to project speech: its jobs need no grant" in refused(directory.feed(grant(project="speech")))


def test_a_spec_cannot_name_an_owner_itself() -> None:
    directory = world()
    directory.feed(grant())
    spec = admitted(directory.feed(job("a", owner="robots"))).spec
    assert spec.data is not None and spec.data.owner == "speech"
    assert "holds no grant" in why(directory, job("b", project="robots", owner="robots"))


def test_a_revoked_grant_admits_no_job_and_may_be_given_again() -> None:
    directory = world()
    first = directory.feed(grant())[-1]
    [_, over] = directory.feed(revoke())
    assert isinstance(over.event, DatasetGrantRevoked) and (over.event.user, over.event.reason) == ("bo", "it ended")
    assert "there is no dataset speech" in why(directory, job("a"))
    directory.now_ms += 5
    again = directory.feed(grant())[-1]
    assert isinstance(again.event, DatasetGranted) and again.event_id != first.event_id and not again.event.resent
    assert admitted(directory.feed(job("b")))


def test_a_grant_twice_goes_to_partitions_that_missed_it_and_to_no_reader() -> None:
    home, late = world(), world()
    home.feed(grant())
    [again] = home.feed(grant())
    assert again.topic == topics.ADMISSION and isinstance(again.event, DatasetGranted) and again.event.resent
    assert late.feed(again.event) == [] and home.feed(again.event) == []
    assert admitted(late.feed(job("a")))


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (grant(sha256="f" * 64), f"there is no version speech@sha256:{'f' * 64}; `trainhouse data list` shows what there is"),
        (grant().model_copy(update={"dataset": "noise"}), "there is no dataset noise; `trainhouse data list`"),
        (grant(project="visoin"), "there is no project visoin; `trainhouse project list` shows what there is"),
        (grant(project="*"), "there is no project *"),
        (grant(purpose="adverts"), f"adverts is none of the purposes that {ONE.name} may be used for: research, teaching"),
        (revoke(), f"project vision has no grant of {ONE.name} for purpose research; it has: none"),
        (revoke(sha256="f" * 64), f"there is no version speech@sha256:{'f' * 64}"),
        (revoke().model_copy(update={"dataset": "noise"}), "there is no dataset noise"),
    ],
)
def test_what_cannot_be_is_refused(asked: GrantDataset | RevokeDatasetGrant, reason: str) -> None:
    assert reason in refused(world().feed(asked))


def test_a_refused_revocation_names_what_the_project_has() -> None:
    directory = world()
    directory.feed(grant(sha256=None))
    assert "but one of all versions of speech: revoke that: `trainhouse data revoke speech --project vision --purpose research`" in refused(
        directory.feed(revoke())
    )
    assert "it has: speech for research" in refused(directory.feed(revoke(sha256=None, purpose="teaching")))


def test_a_deprecated_version_is_not_granted_and_a_purpose_that_no_version_has_is_not() -> None:
    directory = world()
    directory.feed(DeprecateDataset(dataset="speech", sha256=TWO.sha256, user="ada", reason="old"))
    assert "is deprecated: old. No new job may use it" in refused(directory.feed(grant(sha256=TWO.sha256)))
    assert "adverts is none of the purposes that every version of speech may be used for: research, teaching" in refused(
        directory.feed(grant(sha256=None, purpose="adverts"))
    )


def test_the_default_project_is_there_without_a_declaration() -> None:
    directory = world()
    directory.feed(grant(project="default"))
    assert admitted(directory.feed(job("a", project="default")))


def test_grants_of_a_dataset_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = world()
    monkeypatch.setattr(grant_rules, "MAX_GRANTS", 1)
    directory.feed(grant())
    assert "has 1 grants already; revoke one" in refused(directory.feed(grant(project="robots")))
    monkeypatch.undo()
    held = directory.state.datasets.held("speech")
    directory.feed(grant(project="robots"))
    assert directory.state.datasets.held("speech").size_bytes > held.size_bytes
    assert directory.state.datasets.held(None).size_bytes == directory.state.datasets.held("speech").size_bytes
    directory.feed(revoke(project="robots"))
    assert directory.state.datasets.held("speech") == held
    monkeypatch.setattr(datasets_module, "MAX_BYTES", held.size_bytes)
    assert "so much is known of datasets that no grant fits" in refused(directory.feed(grant(project="robots")))


def test_another_partition_notes_what_was_decided_and_a_state_is_read_back_alike() -> None:
    home, other = world(), world()
    decided = [effect for asked in (grant(), revoke(), grant(), grant(sha256=None, project="robots")) for effect in home.feed(asked)]
    for effect in (e for e in decided if e.topic == topics.ADMISSION):
        for directory in (home, other):
            assert directory.feed(effect.event, str(effect.event_id)) == []
    assert len({e.event_id for e in decided if e.topic == topics.DATASETS}) == 4
    for effect in reversed(decided):
        other.feed(effect.event)
    assert admitted(home.feed(job("j"))) and admitted(other.feed(job("j")))
    assert other.state.datasets.grants("speech") == home.state.datasets.grants("speech")
    machine = DirectoryMachine(control_partitions=4)
    dumped = machine.dump(other.state)
    assert machine.dump(machine.load(dumped)) == dumped and b'"grants"' in dumped
    assert machine.load(dumped).datasets.held("speech") == other.state.datasets.held("speech")


def test_a_partition_that_knows_no_such_dataset_keeps_no_grant_of_it() -> None:
    directory = Directory()
    directory.feed(world().feed(grant())[0].event)
    assert not directory.state.datasets.grants("speech").keys


def test_below_the_level_nothing_is_granted_and_refusals_are_as_before() -> None:
    directory = world()
    decided = directory.feed(grant())[-1].event
    directory.machine = directory.machine.at(GRANTS_SINCE - 1)
    assert "an update is not finished" in refused(directory.feed(grant()))
    assert "an update is not finished" in refused(directory.feed(revoke()))
    assert refused(directory.feed(job("a"))) == (
        "spec.data.dataset: there is no dataset speech; publish it: `trainhouse data publish speech PATH`"
    )
    assert "spec.data.owner: an update is not finished" in refused(directory.feed(job("b", project="speech", owner="vision")))
    with pytest.raises(UnexpectedInput, match=f"must be at level {GRANTS_SINCE}"):
        directory.feed(decided)


@pytest.mark.parametrize("asked", [grant(), revoke()])
def test_intake_takes_them_from_operators_and_from_no_projects_own_topic(asked: GrantDataset | RevokeDatasetGrant) -> None:
    value = encode(envelope_of(asked, id="g1", source="me", now_ms=1))
    (out,) = screen(Arrived(0, 1, 1_000, value), 4, 5_000).outgoing
    sent = decode(out.value).event
    assert out.key == b"speech" and isinstance(sent, type(asked)) and sent.admission_partitions == 4
    outgoing = screen(Arrived(0, 1, 1_000, value, topic=jobs_topic("vision")), 4, 5_000).outgoing
    assert {each.topic for each in outgoing} == {topics.DEAD_LETTERS, topics.STATUS, status_topic("vision")}
    [answer] = [decode(each.value).event for each in outgoing if each.topic == status_topic("vision")]
    assert isinstance(answer, JobStatus) and "does not belong on" in answer.reason and "ask an operator" in answer.reason


def with_fields(name: str, *fields: str) -> DatasetVersion:
    """A version of project speech with these fields."""
    of = tuple(DataField(name=f"json.{field}", type="text") for field in fields)
    return version_of(manifest(fields=of, schema_hash=schema_hash_of(of)), name, "speech")


def test_the_schema_of_a_version_without_a_grant_is_not_read() -> None:
    directory = world()
    patients = with_fields("hospital", "diagnosis")
    directory.feed(publish(patients, "1.0.0"))
    directory.feed(grant())
    for reference in ("hospital@1.0.0", str(patients.name), "hospital@9.9.9", "nosuch@1.0.0"):
        reason = refused(directory.feed(job(f"a-{len(reference)}-{reference[:4]}", schema_of=reference)))
        name = reference.partition("@")[0]
        assert reason == f"spec.data.schema_of: there is no dataset {name}; publish it: `trainhouse data publish {name} PATH`"
    for reference in ("speech@1.1.0", "speech@7.0.0"):
        reason = refused(directory.feed(job(f"b-{reference[-5:]}", schema_of=reference)))
        assert reason == "spec.data.schema_of: there is no dataset speech; publish it: `trainhouse data publish speech PATH`"
    assert admitted(directory.feed(job("d", schema_of="speech@1.0.0")))
    directory.feed(grant().model_copy(update={"dataset": "hospital", "sha256": patients.sha256}))
    assert "json.diagnosis is not in it" in refused(directory.feed(job("e", schema_of="hospital@1.0.0")))


def test_a_refusal_lists_no_version_without_a_grant() -> None:
    directory = world()
    directory.feed(grant())
    directory.feed(DeprecateDataset(dataset="speech", sha256=ONE.sha256, user="ada", reason="old"))
    reason = refused(directory.feed(job("a")))
    assert "is deprecated: old" in reason and "1.1.0" not in reason and "Ask its owner, project speech" in reason
    directory.feed(grant(sha256=TWO.sha256))
    assert "Name one of: speech@1.1.0" in refused(directory.feed(job("b")))
    later = version(project="speech", licence="GPL")
    directory.feed(publish(later, "2.0.0"))
    assert "2.0.0" not in refused(directory.feed(job("c")))
    directory.feed(QuarantineShard(dataset="speech", sha256=TWO.sha256, shard="1" * 64, split="train", evidence=MISSING))
    reason = refused(directory.feed(job("d", "speech@1.1.0")))
    assert "is unhealthy" in reason and "2.0.0" not in reason, reason
    assert "speech@2.0.0" in refused(directory.feed(job("e", "speech@1.1.0", project="speech"))), "its owner sees all"
