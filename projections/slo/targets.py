"""Reads the objectives from their file.

Holds: an objective's query gives rows (at, good, total, value) of a span, and asks of {since} and {now} only; so the same text serves the
command line, rules of alerts and dashboards.
"""

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import Field, StringConstraints, model_validator

from trainhouse.events.model.base import Model

MAX_BYTES = 256 * 1024


class Figure(StrEnum):
    """Figure of the values that is shown beside the share."""

    MEAN = "mean"
    P50 = "p50"
    P95 = "p95"
    P99 = "p99"
    NONE = "none"


class Target(Model):
    """One objective: at least `objective` of what is counted in `window_days` is good; good means `good_means`.

    `figure`: of the values (in `unit`), and `figure_limit` what it should be at most. `derived`: what the figures come from.
    `least_events`: fewer in a span of a burn rate prove nothing.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
    title: str = Field(min_length=1, max_length=128)
    objective: float = Field(gt=0, lt=1)
    window_days: int = Field(28, ge=1, le=365)
    good_means: str
    derived: str
    figure: Figure = Figure.NONE
    figure_limit: float | None = None
    unit: str = ""
    least_events: int = Field(10, ge=1)
    sql: str

    @model_validator(mode="after")
    def _asks_of_its_span(self) -> Self:
        for place in ("{since}", "{now}"):
            if place not in self.sql:
                raise ValueError(f"{self.name}: the query does not name {place}; it must count what lies between the two")
        return self

    def between(self, since: str, now: str) -> str:
        """The query with what stands for the two moments: SQL expressions of DateTime64."""
        return self.sql.strip().replace("{since}", since).replace("{now}", now)


def shipped() -> list[Target]:
    """The objectives that come with Trainhouse. Reads a file."""
    return parse(resources.files("trainhouse.projections.slo").joinpath("targets.yaml").read_text("utf-8"))


def load(path: Path | None) -> list[Target]:
    """The shipped objectives; those of a file replace the ones of their name, or are added. Raises OSError and ValueError."""
    targets = {target.name: target for target in shipped()}
    if path is not None:
        data = path.read_bytes()
        if len(data) > MAX_BYTES:
            raise ValueError(f"{path} has more than {MAX_BYTES} bytes; these are no objectives")
        targets |= {target.name: target for target in parse(data.decode("utf-8", "replace"))}
    return list(targets.values())


def parse(text: str) -> list[Target]:
    """The objectives of a text. Raises ValueError."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"this is no YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("objectives"), list):
        raise ValueError("a file of objectives has `objectives:`, a list")
    return [Target.model_validate(each) for each in content["objectives"]]
