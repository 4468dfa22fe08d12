"""The directory after control grew: pools may be given the new partitions, whose schedulers learn the limits of all projects."""

from __future__ import annotations

import orjson

from tests.unit.scheduler.core.intake.test_core_directory import Directory, refused
from trainhouse.events import ChangeProject, PoolCreated, ProjectLimited
from trainhouse.events.model.routing import ControlGrown
from trainhouse.events.wire import topics


def pool(name: str, partition: int) -> PoolCreated:
    return PoolCreated.model_validate({"pool": name, "partition": partition})


def test_a_pool_may_be_given_a_partition_once_control_has_it() -> None:
    d = Directory().with_pools()
    assert "use 0 to 3" in refused(d.feed(pool("new", 5)))
    assert d.feed(ControlGrown(partitions=6), "control:grown:6") == []
    [effect] = d.feed(pool("new", 5))
    assert (effect.topic, effect.partition) == (topics.CONTROL, 5)
    assert "use 0 to 5" in refused(d.feed(pool("newer", 6)))


def test_a_repeat_and_a_smaller_count_change_nothing() -> None:
    d = Directory().with_pools()
    d.feed(ControlGrown(partitions=6), "control:grown:6")
    before = d.machine.dump(d.state)
    d.feed(ControlGrown(partitions=6), "control:grown:6")
    assert d.machine.dump(d.state) == before
    d.feed(ControlGrown(partitions=5), "control:grown:5")
    assert d.state.control_partitions == 6


def test_the_schedulers_of_new_partitions_alone_learn_all_limits() -> None:
    d = Directory().with_pools()
    for name, running in (("vision", 1), ("speech", 2)):
        d.feed(ChangeProject.model_validate({"project": {"name": name, "limits": {"running": running}}, "admission_partitions": 1}))
    effects = d.feed(ControlGrown(partitions=6))
    told = {(e.partition, e.event.project, e.event.running) for e in effects if isinstance(e.event, ProjectLimited)}
    assert told == {(p, name, n) for p in (4, 5) for name, n in (("vision", 1), ("speech", 2))} and len(effects) == 4
    later = d.feed(ChangeProject.model_validate({"project": {"name": "vision", "limits": {"running": 3}}, "admission_partitions": 1}))
    assert sorted(e.partition for e in later if e.topic == topics.CONTROL) == [0, 1, 2, 3, 4, 5]


def test_a_directory_of_before_is_dumped_as_before() -> None:
    d = Directory().with_pools()
    assert "control_partitions" not in orjson.loads(d.machine.dump(d.state))


def test_until_an_update_is_finished_control_does_not_grow_and_a_repeat_after_it_counts() -> None:
    d = Directory().with_pools()
    newest = d.machine
    d.machine = newest.at(newest.lowest_level)
    assert d.feed(ControlGrown(partitions=6), "control:grown:6") == [] and d.state.control_partitions is None
    d.machine = newest
    d.feed(ControlGrown(partitions=6), "control:grown:6")
    assert d.state.control_partitions == 6
