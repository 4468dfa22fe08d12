"""Events of tracking, each in one line for a person.

Holds: pure; never raises for a valid event.
"""

from functools import singledispatch

from trainhouse.events.model.artifact import ArtifactRecorded, ArtifactStored
from trainhouse.events.model.base import Event
from trainhouse.events.model.dataset_drift import DatasetDriftMeasured
from trainhouse.events.model.media import MediaRecorded
from trainhouse.events.model.tracking import (
    ArtifactLogged,
    EnvironmentCaptured,
    ExperimentChanged,
    InputsLogged,
    LoggedModelChanged,
    ModelsLinked,
    ParametersLogged,
    TagsChanged,
    TraceRecorded,
    TrackedRunBegun,
    TrackedRunChanged,
)

SHOWN = 8


@singledispatch
def tracking_line(event: Event) -> str:
    """One line; the shell cuts it to length."""
    return type(event).__name__


@tracking_line.register
def _(event: TrackedRunBegun) -> str:
    return f"run {event.name} of {event.user} began in {event.experiment}, told by {event.client}"


@tracking_line.register
def _(event: TrackedRunChanged) -> str:
    changes = [f"is {event.state}"] if event.state else []
    changes += [f"is named {event.name}"] if event.name else []
    changes += ["was deleted" if event.deleted else "was restored"] if event.deleted is not None else []
    return f"run {', '.join(changes) or 'ended'}"


@tracking_line.register
def _(event: ParametersLogged) -> str:
    return f"parameters {_some(event.parameters)}"


@tracking_line.register
def _(event: TagsChanged) -> str:
    return "; ".join(filter(None, [_some(event.tags) and f"tags {_some(event.tags)}", _gone(event.deleted)]))


@tracking_line.register
def _(event: ArtifactLogged) -> str:
    return f"artifact {event.path} {'deleted' if event.deleted else f'stored: {event.size_bytes} bytes'}"


@tracking_line.register
def _(event: ArtifactStored) -> str:
    done = "no longer has its name" if event.deleted else f"stored: {event.files} files, {event.bytes} bytes"
    return f"{event.kind} {event.name}@sha256:{event.sha256[:12]} {done}"


@tracking_line.register
def _(event: ArtifactRecorded) -> str:
    return (
        f"rank {event.rank} {event.action} {event.kind} {event.name}@sha256:{event.sha256[:12]}: {event.files} files, {event.bytes} bytes"
    )


@tracking_line.register
def _(event: TraceRecorded) -> str:
    return f"rank {event.rank} profiled for {event.steps} steps from step {event.first_step}: {event.path}, {event.size_bytes} bytes"


@tracking_line.register
def _(event: MediaRecorded) -> str:
    return f"rank {event.rank} logged {event.path}, {event.size_bytes} bytes"


@tracking_line.register
def _(event: InputsLogged) -> str:
    return f"reads {', '.join(d.name for d in event.datasets[:SHOWN])}"


@tracking_line.register
def _(event: EnvironmentCaptured) -> str:
    code = f"git {event.git_commit[:12]}{' with changes' if event.git_dirty else ''}" if event.git_commit else "no git"
    versions = f"python {event.python_version}, torch {event.torch_version}" if event.torch_version else f"python {event.python_version}"
    return f"attempt {event.attempt} runs on {event.host}: {code}, {versions}, {len(event.packages)} packages"


@tracking_line.register
def _(event: ExperimentChanged) -> str:
    return f"experiment {event.name} {'made' if event.created else 'changed'} by {event.user}"


@tracking_line.register
def _(event: LoggedModelChanged) -> str:
    changes = [f"logged by {event.user}"] if event.created else []
    changes += [f"is {event.status}"] if event.status else []
    changes += ["was deleted" if event.deleted else "was restored"] if event.deleted is not None else []
    return f"model {event.name} {', '.join(changes) or 'changed'}"


@tracking_line.register
def _(event: ModelsLinked) -> str:
    shown = ", ".join(f"{link.role} {link.model_id}" for link in event.models[:SHOWN])
    return f"logged models: {shown or 'none'}"


@tracking_line.register
def _(event: DatasetDriftMeasured) -> str:
    shown = ", ".join(field.field for field in event.fields[: min(SHOWN, event.fields_drifted)])
    against = "its predecessor" if event.predecessor else event.against_sha256[:12]
    drifted = f"{event.fields_drifted} of {event.fields_compared} fields drifted"
    return f"{event.dataset}@sha256:{event.sha256[:12]} against {against}: {drifted}{f': {shown}' if shown else ''}"


def _some(pairs: dict[str, str]) -> str:
    shown = ", ".join(f"{key}={value[:60]}" for key, value in list(pairs.items())[:SHOWN])
    return shown + (f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else "")


def _gone(keys: tuple[str, ...]) -> str:
    return f"removed: {', '.join(keys[:SHOWN])}" if keys else ""


TRACKED = tuple(kind for kind in tracking_line.registry if kind is not object)
