"""Suggestion of a sampler, apart from the samplers: the process that only passes it on loads none of their libraries."""

from dataclasses import dataclass, field
from typing import Final

from trainhouse.events.model.study import SamplerVersions
from trainhouse.events.model.study_space import Value

_UNKNOWN: Final = SamplerVersions()


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Values for a trial, or why there are none."""

    values: dict[str, Value] = field(default_factory=dict)
    exhausted: bool = False
    versions: SamplerVersions = _UNKNOWN
    failure: str = ""
