"""Submissions in few words, as other training services take them, as specs of jobs.

Holds: pure; a submission in few words means exactly one spec, which is judged like any other; what it cannot say has the spec's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from trainhouse.events import JobSpec
from trainhouse.events.model.bounds import MOST_COUNT, MOST_DURATION_S
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.labels import MOST_LABEL_CHARS, Label
from trainhouse.events.model.spec import MOST_HYPERPARAMETERS, MOST_RANKS, Scalar
from trainhouse.events.model.version_names import REFERENCE_PATTERN

_HASHED: Final = re.compile(r"(?P<uri>.+)@sha256:(?P<sha256>[0-9a-f]{64})")
MOST_REFERENCE_CHARS: Final = 4096
Reference = Annotated[str, Field(min_length=1, max_length=MOST_REFERENCE_CHARS)]
DATA: Final = "dataset: NAME@VERSION, NAME@sha256:HASH, or ADDRESS@sha256:HASH"
Command = Annotated[list[Annotated[str, Field(max_length=65_536)]], Field(min_length=1, max_length=1024)]


class Few(BaseModel):
    """Part of a submission in few words: unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid")


class Devices(Few):
    """Devices of a training run, one for each of its ranks."""

    gpus: Annotated[int, Field(ge=1, le=MOST_RANKS, description="ranks, one device each")] = 1
    gpu_type: Annotated[Label, Field(description='type of the devices; "any": what the pool has, "cpu": cpu slots')] = "any"
    cpus_per_gpu: Annotated[float | None, Field(gt=0, le=4096, description="cores for each rank")] = None
    memory_gib_per_gpu: Annotated[float | None, Field(gt=0, le=65_536, description="main memory for each rank, in GiB")] = None


class CamelDevices(Devices):
    """Devices of a job, one for each of its ranks."""

    model_config = ConfigDict(alias_generator=to_camel)


class CamelPolicy(Few):
    """Schedule of saves, and how many checkpoints stay."""

    model_config = ConfigDict(alias_generator=to_camel)

    every_steps: Annotated[int | None, Field(ge=1, le=MOST_COUNT, description="steps from one save to the next")] = None
    every_seconds: Annotated[float | None, Field(gt=0, le=MOST_DURATION_S, description="seconds from one save to the next")] = None
    keep_last: Annotated[int | None, Field(ge=1, le=1000, description="newest checkpoints that are kept")] = None


class FewWords(Few):
    """A submission in few words; `spec` is what it means."""

    command: Annotated[Command, Field(description="program and arguments; `{name}` is the value of a hyperparameter")]
    code_ref: Annotated[Reference | None, Field(description="packed folder that ranks start in: ADDRESS@sha256:HASH")] = None
    hyperparameters: Annotated[dict[Label, Scalar], Field(description="values that the program reads")] = {}
    name: Annotated[Label, Field(description="name of the job, from which its id begins")] = "job"
    project: Annotated[Label, Field(description="project that it belongs to")] = DEFAULT_PROJECT
    pool: Annotated[Label, Field(description="pool of nodes that runs it")] = "default"
    _spec: JobSpec

    @property
    def spec(self) -> JobSpec:
        """The spec that it means."""
        return self._spec

    def mean(self, data: str | None, devices: Devices, **more: Any) -> None:
        """Sets the spec. Raises ValueError."""
        fields = {
            "name": self.name,
            "project": self.project,
            "pool": self.pool,
            "runtime": {"command": self.command},
            "hyperparameters": self.hyperparameters,
            "gang": {"ranks": devices.gpus},
            "resources": {
                "device_type": devices.gpu_type,
                "cpus_per_device": devices.cpus_per_gpu,
                "memory_gib_per_device": devices.memory_gib_per_gpu,
            },
            "code": None if self.code_ref is None else _archive(self.code_ref),
            "data": None if data is None else _data(data),
        }
        self._spec = JobSpec.model_validate(fields | more)


class TrainingRun(FewWords):
    """A training run: a model's configuration, a dataset, hyperparameters, devices. `POST /v1/training-jobs` takes all that a spec has."""

    configuration: Annotated[
        dict[str, Any],
        Field(alias="model_config", description="configuration of the model: hyperparameters `model.KEY`, with dots for what is nested"),
    ] = {}
    dataset_ref: Annotated[Reference | None, Field(description=DATA)] = None
    resources: Annotated[Devices, Field(description="devices")] = Devices()

    @model_validator(mode="after")
    def _meant(self) -> TrainingRun:
        # One more than a spec may have, which it then refuses: a long list is not gone through to its end.
        model = dict(islice(_flat(self.configuration, "model"), MOST_HYPERPARAMETERS + 1))
        both = sorted(set(model) & set(self.hyperparameters))
        if both:
            raise ValueError(f"model_config and hyperparameters both say {both[0]}; leave one of them out")
        self.mean(self.dataset_ref, self.resources, hyperparameters=model | self.hyperparameters)
        return self


class PlainJob(FewWords):
    """A job in few words: its code, its data, its devices and when it saves. With `spec` instead it says all that a spec has."""

    model_config = ConfigDict(alias_generator=to_camel)

    data_snapshot: Annotated[Reference | None, Field(description=DATA)] = None
    resources: Annotated[CamelDevices, Field(description="devices")] = CamelDevices()
    checkpoint_policy: Annotated[CamelPolicy, Field(description="when it saves")] = CamelPolicy()

    @model_validator(mode="after")
    def _meant(self) -> PlainJob:
        policy = self.checkpoint_policy
        saves = {"every_steps": policy.every_steps, "every_s": policy.every_seconds, "keep_last": policy.keep_last}
        self.mean(self.data_snapshot, self.resources, checkpoint={name: value for name, value in saves.items() if value is not None})
        return self


def _archive(reference: str) -> dict[str, str]:
    found = _HASHED.fullmatch(reference)
    if found is None:
        raise ValueError(f"{reference[:200]!r} names no code: write ADDRESS@sha256:HASH, as `trainhouse submit` stores an archive")
    return found.groupdict()


def _data(reference: str) -> dict[str, str]:
    """Data elsewhere have an address and a hash; all else is a version of a dataset. Raises ValueError."""
    if "://" not in reference:
        if not re.fullmatch(REFERENCE_PATTERN, reference):
            raise ValueError(f"{reference[:200]!r} names no version of a dataset: write NAME@1.2.0, or NAME@sha256:HASH")
        return {"dataset": reference}
    found = _HASHED.fullmatch(reference)
    if found is None:
        raise ValueError(f"{reference[:200]!r} has no hash, so that it could change: write ADDRESS@sha256:HASH, or a version of a dataset")
    return found.groupdict()


def _flat(value: Any, path: str) -> Iterator[tuple[str, Scalar]]:
    """Values by dotted path; elements of a list have their place in it. Raises ValueError for a long path."""
    if len(path) > MOST_LABEL_CHARS:
        raise ValueError(f"model_config: {path[:80]}… is longer than a hyperparameter's name may be, {MOST_LABEL_CHARS} characters")
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _flat(part, f"{path}.{name}")
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _flat(part, f"{path}.{place}")
    else:
        yield path, value
