"""Shards in quarantine: decided once, known to every partition, told to jobs that are admitted, and released."""

from __future__ import annotations

import pytest

from tests.support.dataset_versions import publish
from tests.unit.scheduler.core.intake.test_core_directory import Directory, refused, submit
from tests.unit.scheduler.core.intake.test_directory_datasets import ONE, admitted, published
from trainhouse.events import QuarantineShard, ReleaseShard, ShardEvidence, ShardFault, ShardQuarantined, ShardReleased
from trainhouse.events.model.labels import MOST_QUARANTINED
from trainhouse.events.wire import topics
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.intake.directory import QUARANTINES_SINCE, DirectoryMachine

SHARD, OTHER = "1" * 64, "2" * 64


def quarantine(shard: str = SHARD, sha256: str = ONE.sha256, partitions: int = 1) -> QuarantineShard:
    evidence = ShardEvidence(fault=ShardFault.TRUNCATED, sample="s3", expected="40 bytes", seen="7 bytes")
    return QuarantineShard(dataset="speech", sha256=sha256, shard=shard, split="train", evidence=evidence, admission_partitions=partitions)


def release(shard: str = SHARD, sha256: str = ONE.sha256) -> ReleaseShard:
    return ReleaseShard(dataset="speech", sha256=sha256, shard=shard, user="ada", reason="whole again")


def told(directory: Directory, job: str) -> tuple[str, ...]:
    data = admitted(directory.feed(submit(job, data={"dataset": "speech@1.0.0", "quarantined": ["9" * 64]}))).spec.data
    assert data is not None
    return data.quarantined


def test_a_shard_is_quarantined_once_however_many_ask_and_jobs_are_told() -> None:
    directory = published(Directory().with_pools())
    assert told(directory, "before") == (), "whatever a spec says itself"
    effects = directory.feed(quarantine(partitions=3))
    assert [(e.topic, e.partition) for e in effects] == [*((topics.ADMISSION, n) for n in range(3)), (topics.DATASETS, None)]
    decided = effects[-1].event
    assert isinstance(decided, ShardQuarantined) and decided.evidence.seen == "7 bytes" and effects[-1].key == "speech"
    again = directory.feed(quarantine())
    assert [e.topic for e in again] == [topics.ADMISSION], "for partitions that missed it; readers have it"
    assert directory.feed(decided) == []
    directory.feed(quarantine(OTHER))
    assert told(directory, "after") == (SHARD, OTHER)


def test_a_release_takes_it_back_and_it_may_be_quarantined_again() -> None:
    directory = published(Directory().with_pools())
    first = directory.feed(quarantine())[-1]
    [_, gone] = directory.feed(release())
    assert isinstance(gone.event, ShardReleased) and (gone.event.user, gone.event.reason) == ("ada", "whole again")
    assert told(directory, "j") == ()
    assert f"shard {SHARD} of {ONE.name} is not in quarantine" in refused(directory.feed(release()))
    directory.now_ms += 5
    again = directory.feed(quarantine())[-1]
    assert isinstance(again.event, ShardQuarantined) and again.event_id != first.event_id


def test_another_partition_notes_what_was_decided_and_a_state_is_read_back_alike() -> None:
    one, other = published(Directory()), published(Directory().with_pools())
    for asked in (quarantine(), quarantine(OTHER), release()):
        decided = one.feed(asked)[-1].event
        assert other.feed(decided) == [] and other.feed(decided) == []
    assert told(other, "j") == (OTHER,)
    machine = DirectoryMachine(control_partitions=4)
    dumped = machine.dump(other.state)
    assert machine.dump(machine.load(dumped)) == dumped and b'"quarantined"' in dumped


def test_what_a_partition_decided_before_does_not_undo_what_it_decides_since() -> None:
    home, other = published(Directory().with_pools()), published(Directory().with_pools())
    decided = [effect for asked in (quarantine(), release(), quarantine()) for effect in home.feed(asked)]
    for effect in (e for e in decided if e.topic == topics.ADMISSION):
        for directory in (home, other):
            directory.feed(effect.event, str(effect.event_id))
    assert len({e.event_id for e in decided if e.topic == topics.DATASETS}) == 3
    for effect in reversed(decided):
        other.feed(effect.event)
    assert told(home, "j") == told(other, "j") == (SHARD,)


def test_a_partition_that_missed_a_quarantine_learns_of_it_when_it_is_sent_again() -> None:
    home, late = published(Directory().with_pools()), Directory().with_pools()
    home.feed(quarantine())
    home.feed(quarantine(OTHER))
    for effect in home.feed(publish(ONE, "1.0.0", partitions=2)):
        assert effect.topic == topics.ADMISSION
        if effect.partition == 1:
            late.feed(effect.event, str(effect.event_id))
    assert told(late, "a") == (SHARD, OTHER)
    missed = published(Directory().with_pools())
    for effect in home.feed(quarantine(partitions=2)):
        missed.feed(effect.event, str(effect.event_id))
    assert told(missed, "b") == (SHARD,)


def test_what_the_platform_asks_for_itself_is_refused_without_a_record() -> None:
    directory = published(Directory())
    assert directory.feed(quarantine(sha256="9" * 64).model_copy(update={"user": "trainhouse"})) == []


def test_what_cannot_be_is_refused() -> None:
    directory = published(Directory())
    assert "there is no version" in refused(directory.feed(quarantine(sha256="9" * 64)))
    assert "there is no version" in refused(directory.feed(release(sha256="9" * 64)))
    for number in range(MOST_QUARANTINED):
        directory.feed(quarantine(f"{number:064x}"))
    assert f"{MOST_QUARANTINED} shards of that version are already" in refused(directory.feed(quarantine("e" * 64)))
    assert directory.feed(publish(ONE, "1.0.1")), "its facts are those of its manifest all the same"


def test_below_the_level_nothing_is_quarantined() -> None:
    directory = published(Directory())
    directory.machine = directory.machine.at(QUARANTINES_SINCE - 1)
    assert "an update is not finished" in refused(directory.feed(quarantine()))
    with pytest.raises(UnexpectedInput, match=f"must be at level {QUARANTINES_SINCE}"):
        decided = ShardReleased(dataset="speech", sha256=ONE.sha256, shard=SHARD, number=1, released_at_ms=1)
        directory.feed(decided)
