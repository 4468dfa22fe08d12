"""Outputs in the directory: which names a job may write, and what its scheduler is answered."""

from typing import Any

import pytest

from tests.support.dataset_versions import publish, version
from tests.unit.scheduler.core.intake.test_core_directory import Directory, refused, submit
from trainhouse.events import DatasetVersionPublished, Envelope, Event, EventId, JobAdmitted, JobRejected, OutputAnswered, PublishDataset
from trainhouse.events.wire import topics
from trainhouse.scheduler.core.intake.directory import OUTPUTS_SINCE
from trainhouse.scheduler.core.protocol.machine import Effect, Input


def of_job(of: Any, **more: Any) -> PublishDataset:
    return publish(of).model_copy(update={"job_id": "j", "pool": "default"} | more)


def answers(effects: list[Effect]) -> list[tuple[int | None, str]]:
    found = [(e.partition, e.event.refusal) for e in effects if isinstance(e.event, OutputAnswered)]
    assert all(e.topic == topics.CONTROL for e in effects if isinstance(e.event, OutputAnswered))
    return found


def test_an_output_is_published_and_its_scheduler_is_answered_where_its_pool_is() -> None:
    effects = Directory().with_pools().feed(of_job(version()))
    assert answers(effects) == [(2, "")]
    assert [e.event.job_id for e in effects if isinstance(e.event, DatasetVersionPublished)] == ["j", "j"]


def test_an_output_that_was_published_before_is_answered_alike() -> None:
    directory = Directory().with_pools()
    directory.feed(of_job(version()))
    effects = directory.feed(of_job(version()))
    assert answers(effects) == [(2, "")]
    assert not [e for e in effects if e.topic == topics.DATASETS]


def test_a_refused_output_is_answered_with_the_reason_and_nowhere_else() -> None:
    directory = Directory().with_pools()
    directory.feed(publish(version(project="x")))
    effects = directory.feed(of_job(version()))
    [(partition, refusal)] = answers(effects)
    assert partition == 2 and "belongs to project x" in refusal and len(effects) == 1


@pytest.mark.parametrize("more", [{"pool": None}, {"job_id": None}])
def test_what_names_no_job_of_a_pool_is_published_as_ever(more: dict[str, Any]) -> None:
    effects = Directory().with_pools().feed(of_job(version(), **more))
    assert not answers(effects) and effects
    assert all(isinstance(e.event, DatasetVersionPublished) and e.event.job_id is None for e in effects)


@pytest.mark.parametrize("unknown", ["level", "pool"])
def test_what_cannot_be_answered_is_not_published_and_its_repetition_is_answered(unknown: str) -> None:
    directory = Directory() if unknown == "pool" else Directory().with_pools()
    machine = directory.machine.at(OUTPUTS_SINCE - 1) if unknown == "level" else directory.machine
    first = [Input(9, Envelope(EventId("j:output:1:speech"), "s", of_job(version()), time_ms=5))]
    decisions = machine.decide(directory.state, 2_000, first)
    assert [type(d).__name__ for d in decisions] == ["EventSeen", "JobRejected"]
    directory.state = machine.fold(directory.state, 2_000, first, decisions)
    if unknown == "pool":
        directory.with_pools()
    again = [Input(10, Envelope(EventId("j:output:1:speech:2"), "s", of_job(version()), time_ms=5))]
    decisions = directory.machine.decide(directory.state, 3_000, again)
    assert [d.refusal for d in decisions if isinstance(d, OutputAnswered)] == [""]
    assert [d.job_id for d in decisions if isinstance(d, DatasetVersionPublished)] == ["j"]


def test_what_comes_by_a_projects_own_topic_is_no_jobs_output() -> None:
    directory = Directory().with_pools()
    envelope = Envelope(EventId("x"), "test", of_job(version()), time_ms=5, project="default")
    decisions = directory.machine.decide(directory.state, 2_000, [Input(9, envelope)])
    assert not [d for d in decisions if isinstance(d, OutputAnswered)]


def test_a_job_may_not_name_a_dataset_of_another_project_as_its_output() -> None:
    directory = Directory().with_pools()
    directory.feed(publish(version(project="x")))
    assert "spec.outputs: a dataset speech belongs to another project" in refused(directory.feed(submit("j", outputs=["speech"])))
    directory.feed(publish(version("mine")))
    [effect] = directory.feed(submit("k", outputs=["mine", "new"]))
    assert isinstance(effect.event, JobAdmitted) and effect.event.spec.outputs == ("mine", "new")


@pytest.mark.parametrize(("names", "why"), [(["a", "a"], "comes twice"), (["a/b"], "outputs"), (["x" * 129], "outputs")])
def test_outputs_have_names_of_datasets_each_once(names: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        submit("j", outputs=names)


def test_until_an_update_is_finished_no_spec_has_outputs() -> None:
    directory = Directory().with_pools()
    before = directory.machine.at(OUTPUTS_SINCE - 1)

    def refusals(event: Event) -> list[str]:
        decisions = before.decide(directory.state, 2_000, [Input(9, Envelope(EventId("x"), "test", event, time_ms=5))])
        return [d.reason for d in decisions if isinstance(d, JobRejected)]

    assert "an update is not finished" in refusals(submit("j", outputs=["speech"]))[0]
    assert not refusals(submit("j"))
