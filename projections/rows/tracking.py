"""Events of tracking to the tables of runs, parameters, tags, inputs, environments, experiments and logged models.

Holds: one row a thing that an event tells, so a repeat is the same row; the newest word counts by the record's offset (a job's events are
on one partition), and the first one where a beginning must stay. A job's own hyperparameters go before what is logged under their names.
"""

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

from trainhouse.events.model.base import Event
from trainhouse.events.model.gang import GangAllocated
from trainhouse.events.model.spec import Scalar
from trainhouse.events.model.tracking import (
    EnvironmentCaptured,
    ExperimentChanged,
    InputsLogged,
    LoggedModelChanged,
    ModelsLinked,
    ParametersLogged,
    TagsChanged,
    TrackedRunBegun,
    TrackedRunChanged,
)
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, event_ms, optional_ms

_FIRST = 2**56  # a version that falls with the offset: the first one stays
_SPEC = 2**60  # what a spec says is larger than any of those


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Rows of one event of tracking, and of an allocation's hyperparameters; nothing for other events."""
    yield from _rows(envelope.event, record, event_ms(envelope, record))


@singledispatch
def _rows(event: Event, record: Record, at: int) -> Iterator[Row]:
    return iter(())


@_rows.register
def _(event: TrackedRunBegun, record: Record, at: int) -> Iterator[Row]:
    yield Row(
        "tracked_runs_rows",
        {
            "job_id": str(event.job_id),
            "version": _FIRST - record.offset,
            "experiment_id": event.experiment_id,
            "experiment": event.experiment,
            "project": event.project,
            "name": event.name,
            "user": event.user,
            "client": event.client,
            "state": event.state.value,
            "started_at": clamp_ms(event.started_at_ms),
        },
    )


@_rows.register
def _(event: TrackedRunChanged, record: Record, at: int) -> Iterator[Row]:
    changes: dict[str, tuple[str, int | None]] = {}
    if event.state is not None:
        changes["state"] = (event.state.value, None)
        if not event.state.final:
            changes["ended"] = ("", None)
    if event.ended_at_ms is not None:
        changes["ended"] = ("", optional_ms(event.ended_at_ms))
    if event.name is not None:
        changes["name"] = (event.name, None)
    if event.deleted is not None:
        changes["deleted"] = ("1" if event.deleted else "0", None)
    for what, (text, time) in changes.items():
        values = {"job_id": str(event.job_id), "what": what, "text": text, "time": time, "changed_at": clamp_ms(event.at_ms)}
        yield Row("tracked_changes_rows", values | {"version": record.offset + 1})


@_rows.register
def _(event: ParametersLogged, record: Record, at: int) -> Iterator[Row]:
    for key, value in event.parameters.items():
        yield _parameter(str(event.job_id), key, value, _FIRST - record.offset, clamp_ms(event.at_ms))


@_rows.register
def _(event: GangAllocated, record: Record, at: int) -> Iterator[Row]:
    for key, value in event.spec.hyperparameters.items():
        yield _parameter(str(event.job_id), key, _text(value), _SPEC - record.offset, at)


def _parameter(job_id: str, key: str, value: str, version: int, at: int) -> Row:
    return Row("parameters_rows", {"job_id": job_id, "key": key, "value": value, "version": version, "logged_at": at})


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)


@_rows.register
def _(event: TagsChanged, record: Record, at: int) -> Iterator[Row]:
    changes = [(key, value, 0) for key, value in event.tags.items()]
    changes += [(key, "", 1) for key in event.deleted if key not in event.tags]
    for key, value, deleted in changes:
        values = {"job_id": str(event.job_id), "key": key, "value": value, "deleted": deleted, "changed_at": clamp_ms(event.at_ms)}
        yield Row("tags_rows", values | {"version": record.offset + 1})


@_rows.register
def _(event: InputsLogged, record: Record, at: int) -> Iterator[Row]:
    for dataset in event.datasets:
        values = {"job_id": str(event.job_id), "version": record.offset + 1, "logged_at": clamp_ms(event.at_ms)}
        yield Row("inputs_rows", values | dataset.model_dump())


@_rows.register
def _(event: EnvironmentCaptured, record: Record, at: int) -> Iterator[Row]:
    values: dict[str, Any] = event.model_dump(exclude={"at_ms"})
    ids = {"job_id": str(event.job_id), "attempt": int(event.attempt), "epoch": int(event.epoch), "node_id": str(event.node_id or "")}
    lists = {"command": list(event.command), "devices": list(event.devices), "git_dirty": int(event.git_dirty)}
    when = {"captured_at": clamp_ms(event.at_ms), "version": record.offset + 1}
    yield Row("job_environments_rows", values | ids | lists | when)


@_rows.register
def _(event: ExperimentChanged, record: Record, at: int) -> Iterator[Row]:
    if event.created:
        yield _of_experiment(event, "created", "", _FIRST - record.offset)
    if event.deleted is not None:
        yield _of_experiment(event, "deleted", "", record.offset + 1, deleted=event.deleted)
    for key, value in event.tags.items():
        yield _of_experiment(event, "tag", key, record.offset + 1, value)
    for key in event.deleted_tags:
        if key not in event.tags:
            yield _of_experiment(event, "tag", key, record.offset + 1, deleted=True)


def _of_experiment(event: ExperimentChanged, what: str, key: str, version: int, text: str = "", deleted: bool = False) -> Row:
    values = {"experiment_id": event.experiment_id, "name": event.name, "project": event.project, "user": event.user}
    more = {"what": what, "key": key, "version": version, "text": text, "deleted": int(deleted), "changed_at": clamp_ms(event.at_ms)}
    return Row("experiments_rows", values | more)


@_rows.register
def _(event: LoggedModelChanged, record: Record, at: int) -> Iterator[Row]:
    changes: dict[str, tuple[str, int]] = {}
    if event.created:
        changes["created"] = ("", _FIRST - record.offset)
    if event.status is not None:
        changes["status"] = (event.status, record.offset + 1)
    if event.deleted is not None:
        changes["deleted"] = ("1" if event.deleted else "0", record.offset + 1)
    values = event.model_dump(include={"experiment_id", "experiment", "project", "name", "user", "model_type"})
    ids = {"model_id": str(event.model_id), "source_run_id": str(event.source_run_id or ""), "changed_at": clamp_ms(event.at_ms)}
    for what, (text, version) in changes.items():
        yield Row("logged_models_rows", values | ids | {"what": what, "text": text, "version": version})


@_rows.register
def _(event: ModelsLinked, record: Record, at: int) -> Iterator[Row]:
    for link in event.models:
        values = {"job_id": str(event.job_id), "model_id": str(link.model_id), "role": link.role, "step": link.step}
        yield Row("run_models_rows", values | {"version": record.offset + 1, "linked_at": clamp_ms(event.at_ms)})
