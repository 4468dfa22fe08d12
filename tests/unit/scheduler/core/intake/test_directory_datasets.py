"""Datasets in the directory: who may publish what, which versions a job may name, and how every partition learns of them."""

from typing import Any

import orjson
import pytest

from tests.support.dataset_versions import publish, version
from tests.unit.scheduler.core.intake.test_core_directory import Directory, refused, submit
from trainhouse.events import (
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    DeprecateDataset,
    Envelope,
    EventId,
    JobAdmitted,
    JobRejected,
    PoolCreated,
)
from trainhouse.events.model.upgrade import LevelRaised
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.journal import InputRefused
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.intake import datasets as datasets_module
from trainhouse.scheduler.core.intake.datasets import Datasets
from trainhouse.scheduler.core.intake.directory import DATASETS_SINCE, DirectoryMachine
from trainhouse.scheduler.core.protocol.batch import Proposer, pending
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Effect, Input

ONE = version()
TWO = version(licence="MIT")


def deprecate(of: Any, reason: str = "labels were wrong") -> DeprecateDataset:
    return DeprecateDataset(dataset=of.dataset, sha256=of.sha256, user="ada", reason=reason)


def admitted(effects: list[Effect]) -> JobAdmitted:
    [effect] = effects
    assert isinstance(effect.event, JobAdmitted), effect.event
    return effect.event


def published(directory: Directory) -> Directory:
    directory.feed(publish(ONE, "1.0.0"))
    return directory


def test_a_version_goes_to_every_partition_of_admission_and_then_to_all_who_read() -> None:
    effects = Directory().feed(publish(ONE, "1.0.0", partitions=3))
    assert [(e.topic, e.partition) for e in effects] == [*((topics.ADMISSION, n) for n in range(3)), (topics.DATASETS, None)]
    assert all(isinstance(e.event, DatasetVersionPublished) and e.event.semver == "1.0.0" for e in effects)
    assert effects[-1].key == "speech"


def test_another_partition_notes_what_was_decided_and_sends_nothing() -> None:
    event = Directory().feed(publish(ONE, "1.0.0"))[0].event
    other = Directory().with_pools()
    assert other.feed(event) == [] and other.feed(event) == []
    assert admitted(other.feed(submit("j", data={"dataset": "speech@1.0.0"}))).spec.data is not None
    gone = published(Directory()).feed(deprecate(ONE))[0].event
    assert isinstance(gone, DatasetVersionDeprecated) and other.feed(gone) == []
    assert "is deprecated: labels were wrong" in refused(other.feed(submit("k", data={"dataset": "speech@1.0.0"})))


def test_a_tag_in_a_spec_becomes_the_hash_and_a_repeat_is_the_same_job() -> None:
    directory = published(Directory().with_pools())
    event = submit("j", data={"dataset": "speech@1.0.0", "split": "train"})
    admission = admitted(directory.feed(event))
    spec = admission.spec
    assert admission.spec_sha256 == event.spec.sha256(), "a client that waits for its job knows it by this hash"
    assert spec.data is not None and spec.data.dataset == f"speech@sha256:{ONE.sha256}" and spec.data.split == "train"
    assert directory.feed(event) == []
    assert "these fields differ: data" in refused(directory.feed(submit("j", data={"dataset": f"speech@sha256:{TWO.sha256}"})))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"data": {"dataset": "noise@1.0.0"}},
            "there is no dataset noise; publish it: `trainhouse data publish noise PATH`",
        ),
        ({"data": {"dataset": "speech@2.0.0"}}, "spec.data.dataset: dataset speech has no version 2.0.0; it has: speech@1.0.0"),
        ({"data": {"dataset": f"speech@sha256:{'f' * 64}"}}, f"has no version sha256:{'f' * 64}; it has: speech@1.0.0"),
        ({"data": {"dataset": "speech@1.0.0", "split": "test"}}, "spec.data.split: speech@1.0.0 has no split test; name one of: train"),
    ],
)
def test_a_job_whose_version_or_split_is_unknown_is_refused(fields: dict[str, Any], why: str) -> None:
    assert why in refused(published(Directory().with_pools()).feed(submit("j", **fields)))


def test_a_version_with_purposes_takes_jobs_for_those_alone() -> None:
    directory = Directory().with_pools()
    directory.feed(publish(version(purposes=("research", "teaching")), "1.0.0"))
    data = {"dataset": "speech@1.0.0"}
    assert "spec.data.purpose: name the purpose: one of those that speech@1.0.0 may be used for: research, teaching" in refused(
        directory.feed(submit("a", data=data))
    )
    assert "spec.data.purpose: adverts is none of the purposes that speech@1.0.0" in refused(
        directory.feed(submit("b", data=data | {"purpose": "adverts"}))
    )
    assert admitted(directory.feed(submit("c", data=data | {"purpose": "research"}))).job_id == "c"
    assert admitted(directory.feed(submit("d", data=data, purpose="teaching"))).job_id == "d"


def test_a_deprecated_version_takes_no_new_job_and_names_those_that_do() -> None:
    directory = published(Directory().with_pools())
    directory.feed(publish(TWO, "1.1.0"))
    assert len(directory.feed(deprecate(ONE))) == 2
    [again] = directory.feed(deprecate(ONE, "another reason"))
    assert isinstance(again.event, DatasetVersionDeprecated) and again.event.reason == "labels were wrong"
    answer = refused(directory.feed(submit("j", data={"dataset": "speech@1.0.0"})))
    assert answer == "spec.data.dataset: speech@1.0.0 is deprecated: labels were wrong. Name one of: speech@1.1.0"
    assert f"{ONE.name} is deprecated, for ever" in refused(directory.feed(publish(ONE, "1.2.0")))


def test_of_two_publishers_of_one_tag_the_first_has_it_and_both_versions_are() -> None:
    directory = published(Directory().with_pools())
    *known, refusal = directory.feed(publish(TWO, "1.0.0"))
    assert [e.event.semver for e in known if isinstance(e.event, DatasetVersionPublished)] == [None, None]
    assert f"speech@1.0.0 is speech@sha256:{ONE.sha256}, which was published first" in refused([refusal])
    data = admitted(directory.feed(submit("j", data={"dataset": str(TWO.name)}))).spec.data
    assert data is not None and data.dataset == str(TWO.name)


def test_a_version_that_is_published_again_changes_nothing_but_may_get_another_tag() -> None:
    directory = published(Directory())
    for again in (publish(ONE, "1.0.0", partitions=2), publish(ONE, partitions=2)):
        assert [e.topic for e in directory.feed(again)] == [topics.ADMISSION] * 2
    assert [e.topic for e in directory.feed(publish(ONE, "1.0.1"))] == [topics.ADMISSION, topics.DATASETS]


def test_a_name_belongs_to_the_project_that_published_under_it_first() -> None:
    other = version(project="vision", licence="MIT")
    assert "dataset speech belongs to project default" in refused(published(Directory()).feed(publish(other)))


def test_what_is_not_there_is_not_deprecated() -> None:
    assert "Nothing was deprecated" in refused(published(Directory()).feed(deprecate(TWO)))


def test_versions_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets_module, "MAX_VERSIONS", 1)
    directory = published(Directory())
    assert "so many versions are known" in refused(directory.feed(publish(TWO)))
    assert directory.feed(publish(ONE, "1.0.1")) != []
    monkeypatch.setattr(datasets_module, "MAX_VERSIONS", 9)
    monkeypatch.setattr(datasets_module, "MAX_BYTES", 500)
    assert "so many versions are known" in refused(directory.feed(publish(TWO)))


def test_until_an_update_is_finished_nothing_is_published_and_no_spec_names_a_version() -> None:
    directory = Directory().with_pools()
    before = directory.machine.at(DATASETS_SINCE - 1)
    for event in (publish(ONE), submit("j", data={"dataset": "speech@1.0.0"})):
        decisions = before.decide(directory.state, 2_000, [Input(9, Envelope(EventId("x"), "test", event, time_ms=5))])
        assert [d.reason for d in decisions if isinstance(d, JobRejected) and "an update is not finished" in d.reason]
        assert len([d for d in decisions if isinstance(d, JobRejected)]) == 1


def test_a_directory_without_datasets_is_dumped_as_before_and_one_with_them_comes_back() -> None:
    directory = Directory()
    directory.feed(PoolCreated.model_validate({"pool": "p", "partition": 0}))
    assert "datasets" not in orjson.loads(directory.machine.dump(directory.state))
    published(directory).feed(deprecate(ONE))
    directory.feed(publish(TWO, "1.1.0"))
    dumped = directory.machine.dump(directory.state)
    again = directory.machine.load(dumped)
    assert again.datasets.tagged("speech", "1.1.0") == TWO.sha256 and again.datasets.owner("speech") == "default"
    assert again.datasets.held("default") == directory.state.datasets.held("default") == directory.state.datasets.held(None)


def test_for_jobs_of_another_project_a_version_does_not_exist() -> None:
    directory = Directory().with_pools()
    directory.feed(publish(version(project="secret", purposes=("treatment",)), "1.0.0"))
    for number, tag in enumerate(("1.0.0", "2.0.0", f"sha256:{version(purposes=('treatment',)).sha256}")):
        unknown, answer = (
            refused(
                directory.feed(submit(f"{name}{number}", project="other", data={"dataset": f"{name}@{tag}", "purpose": "treatment"}))[-1:]
            )
            for name in ("noise", "speech")
        )
        assert answer == unknown.replace("noise", "speech")
    assert admitted(directory.feed(submit("s", project="secret", purpose="treatment", data={"dataset": "speech@1.0.0"}))).job_id == "s"


def proposed(partition_at: int, event: Any) -> list[Any]:
    """The decisions of the records that a partition at this level makes of one input."""
    machine, decisions = DirectoryMachine(), list[Any]()
    proposer, folded = Proposer(machine, "me", input_topic=topics.ADMISSION, first_level=partition_at), begin(machine, 0)
    envelope = Envelope(EventId("d"), "test", event, time_ms=5)
    waiting = [pending(0, encode(envelope), HEADERS, proposer.limits)]
    while folded.cursor < 0:
        written = proposer.propose(folded, 2_000, waiting, 0, tick=False)
        assert written is not None
        folded, record = fold_bytes(machine, folded, written.value)
        decisions += record.decisions
    return [folded, *decisions]


@pytest.mark.parametrize("gone", [False, True])
def test_a_partition_whose_update_is_not_finished_finishes_it_for_a_decided_version(gone: bool) -> None:
    directory = published(Directory())
    event = directory.feed(deprecate(ONE) if gone else publish(TWO))[0].event
    before = DirectoryMachine().at(DATASETS_SINCE - 1)
    with pytest.raises(UnexpectedInput, match="must be at level 10"):
        before.decide(before.initial(0), 2_000, [Input(9, Envelope(EventId("x"), "test", event, time_ms=5))])
    folded, raised, *others = proposed(DATASETS_SINCE - 1, event)
    assert isinstance(raised, LevelRaised) and raised.level == DATASETS_SINCE and folded.level == DATASETS_SINCE
    assert not [d for d in others if isinstance(d, InputRefused)]
    assert gone or folded.state.datasets.get("speech", TWO.sha256) is not None
    assert not [d for d in proposed(DATASETS_SINCE, event)[1:] if isinstance(d, LevelRaised)]


def test_a_version_that_is_published_again_reaches_a_partition_that_missed_it() -> None:
    directory, other = published(Directory()), Directory().with_pools()
    [again] = directory.feed(publish(ONE, "1.0.0"))
    assert other.feed(again.event) == []
    assert admitted(other.feed(submit("j", data={"dataset": "speech@1.0.0"}))).job_id == "j"


def test_a_fork_shares_all_names_until_one_of_both_changes() -> None:
    known = Datasets()
    known.put(ONE, "1.0.0")
    fork = known.fork()
    assert fork._versions is known._versions and fork._tags is known._tags
    later = known.fork()
    known.put(TWO, "1.1.0")
    fork.deprecate("speech", ONE.sha256, "labels were wrong")
    assert later.get("speech", TWO.sha256) is None and fork.get("speech", TWO.sha256) is None
    before, after, unchanged = (of.get("speech", ONE.sha256) for of in (known, fork, later))
    assert before is not None and after is not None and before == unchanged
    assert before.deprecated is None and after.deprecated == "labels were wrong"
    rows = known._versions["speech"]
    known.put(version(licence="CC0"), None)
    assert known._versions["speech"] is rows, "what is its own is not copied again"


def test_tags_of_a_version_have_a_bound_and_count() -> None:
    directory = published(Directory().with_pools())
    before = directory.state.datasets.held("default").size_bytes
    for number in range(1, datasets_module.MAX_TAGS):
        assert len(directory.feed(publish(ONE, f"1.0.{number}"))) == 2
    assert directory.state.datasets.held("default").size_bytes - before > datasets_module.MAX_TAGS * 64
    *_, refusal = directory.feed(publish(ONE, "2.0.0"))
    assert f"but not as 2.0.0: it has {datasets_module.MAX_TAGS} tags" in refused([refusal])
    assert "has no version 2.0.0" in refused(directory.feed(submit("j", data={"dataset": "speech@2.0.0"})))
    assert not [e for e in directory.feed(publish(ONE, "1.0.1")) if e.topic == topics.STATUS]


def test_tags_and_long_reasons_are_refused_where_bytes_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = published(Directory().with_pools())
    monkeypatch.setattr(datasets_module, "MAX_BYTES", directory.state.datasets.held(None).size_bytes)
    *_, refusal = directory.feed(publish(ONE, "1.0.1"))
    assert "so much is known of datasets that no tag fits" in refused([refusal])
    assert "give one of at most 256 bytes" in refused(directory.feed(deprecate(ONE, "x" * 257)))
    assert len(directory.feed(deprecate(ONE, "x" * 256))) == 2, "there is room for a short reason, whatever came since"


def test_no_project_takes_more_versions_than_it_leaves_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets_module, "MAX_VERSIONS", 8)
    directory = Directory()
    counts = {}
    for project in ("a", "b", "c"):
        for number in range(8):
            directory.feed(publish(version(f"of-{project}", project, licence=str(number))))
        counts[project] = directory.state.datasets.held(project).count
    assert counts == {"a": 4, "b": 2, "c": 1}


def test_one_hash_has_one_set_of_purposes_in_a_project() -> None:
    of = version(purposes=("research",))
    other_facts = of.model_copy(update={"dataset": "speech2", "purposes": ()})
    directory = Directory().with_pools()
    directory.feed(publish(of, "1.0.0"))
    answer = refused(directory.feed(publish(other_facts, "1.0.0")))
    assert (
        f"speech2@sha256:{of.sha256} has the hash of speech@sha256:{of.sha256}, and other facts (that one's purposes: research)" in answer
    )
    assert "and other facts" in refused(directory.feed(publish(of.model_copy(update={"purposes": ()}))))
    assert len(directory.feed(publish(of.model_copy(update={"dataset": "speech2"})))) == 2


@pytest.mark.parametrize("order", [("speech", "speech2"), ("speech2", "speech")])
def test_two_partitions_that_knew_nothing_of_each_other_cannot_drop_purposes(order: tuple[str, str]) -> None:
    of = version(purposes=("research",))
    versions = {"speech": of, "speech2": of.model_copy(update={"dataset": "speech2", "purposes": ()})}
    directory = Directory().with_pools()
    for name in order:
        directory.feed(Directory().feed(publish(versions[name], "1.0.0"))[0].event)
    for number, name in enumerate(order):
        answer = refused(directory.feed(submit(f"j{number}", data={"dataset": f"{name}@1.0.0"})))
        assert f"name the purpose: one of those that {name}@1.0.0 may be used for: research" in answer
        assert admitted(directory.feed(submit(f"k{number}", purpose="research", data={"dataset": f"{name}@1.0.0"}))).job_id == f"k{number}"


def test_a_state_that_was_read_back_lists_versions_alike() -> None:
    directory = published(Directory())
    for semver in ("1.0.2", "1.0.1"):
        directory.feed(publish(ONE, semver))
    again = directory.machine.load(directory.machine.dump(directory.state)).datasets
    assert again.listed("speech") == directory.state.datasets.listed("speech") == "speech@1.0.2"
