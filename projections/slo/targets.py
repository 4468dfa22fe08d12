"""Reads the objectives from their file.

Holds: an objective's query gives rows (at, good, total, value) of a span, and asks of {since} and {now} only; so the same text serves the
command line, rules of alerts and dashboards. The shipped ones are read without a model, by which a test reads them; others by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 256 * 1024


class Figure(StrEnum):
    """Figure of the values that is shown beside the share."""

    MEAN = "mean"
    P50 = "p50"
    P95 = "p95"
    P99 = "p99"
    NONE = "none"


@dataclass(frozen=True)
class Target:
    """One objective: at least `objective` of what is counted in `window_days` is good; good means `good_means`.

    `figure`: of the values (in `unit`), and `figure_limit` what it should be at most. `derived`: what the figures come from.
    `least_events`: fewer in a span of a burn rate prove nothing.
    """

    name: str
    title: str
    objective: float
    good_means: str
    derived: str
    sql: str
    window_days: int = 28
    figure: Figure = Figure.NONE
    figure_limit: float | None = None
    unit: str = ""
    least_events: int = 10

    def between(self, since: str, now: str) -> str:
        """The query with what stands for the two moments: SQL expressions of DateTime64."""
        return self.sql.strip().replace("{since}", since).replace("{now}", now)


def shipped() -> list[Target]:
    """The objectives that come with Trainhouse. Reads a file."""
    return [_target(each) for each in _listed(shipped_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))]


def shipped_text() -> str:
    """The file of the shipped objectives."""
    return resources.files("trainhouse.projections.slo").joinpath("targets.yaml").read_text("utf-8")


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
    """The objectives of a text, each of which is as it has to be. Raises ValueError."""
    from trainhouse.projections.slo.written_targets import validated

    return [_target(validated(each)) for each in _listed(text, yaml.SafeLoader)]


def _listed(text: str, loader: Any) -> list[Any]:
    try:
        content = yaml.load(text, loader)  # nosec B506  # a safe loader, of the two the quick one for what is shipped
    except yaml.YAMLError as error:
        raise ValueError(f"this is no YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("objectives"), list):
        raise ValueError("a file of objectives has `objectives:`, a list")
    found: list[Any] = content["objectives"]
    return found


def _target(fields: Mapping[str, Any]) -> Target:
    limit = fields.get("figure_limit")
    numbers = {"objective": float(fields["objective"]), "figure_limit": None if limit is None else float(limit)}
    return Target(**{**fields, **numbers, "figure": Figure(fields.get("figure", Figure.NONE))})
