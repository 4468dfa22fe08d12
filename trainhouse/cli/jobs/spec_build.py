"""From what was typed to specs: a file, options on top, a sweep on top of that.

Holds: pure (a file's content comes in parsed); an option that was not typed changes nothing.
"""

import copy
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainhouse.cli.jobs import sweep
from trainhouse.cli.jobs.spec_file import SpecFile
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.client.names import default_name
from trainhouse.events.model.version_names import REFERENCE_PATTERN, SPLIT_PATTERN
from trainhouse.run_names import name_of

if TYPE_CHECKING:
    from trainhouse.events import JobSpec

DATA = re.compile(r"^(?P<uri>.+)#(?:sha256[:=])?(?P<sha256>[0-9a-f]{64})$")
DATASET = re.compile(rf"^(?P<dataset>{REFERENCE_PATTERN})(?::(?P<split>{SPLIT_PATTERN}))?$")


@dataclass(frozen=True)
class Typed:
    """The options of `submit` that speak of the spec; None and () mean: not typed."""

    command: tuple[str, ...] = ()
    name: str | None = None
    project: str | None = None
    purpose: str | None = None
    team: str | None = None
    user: str | None = None
    pool: str | None = None
    priority: int | None = None
    gang: int | None = None
    parallelism: str | None = None
    seed: int | None = None
    resume_from: str | None = None
    device: str | None = None
    interpreter: str | None = None
    preemptible: bool | None = None
    env: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    hyperparameters: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    data: str | None = None
    outputs: tuple[str, ...] = ()
    register: str | None = None
    every_steps: int | None = None
    keep_last: int | None = None
    max_run_time: str | None = None
    restarts: int | None = None
    sweeps: tuple[str, ...] = field(default=())


def fields_of(typed: Typed, base: dict[str, Any], default_user: str) -> list[dict[str, Any]]:
    """The fields of each job's spec: one, or one for each point of the sweep. Raises CliError."""
    from trainhouse.cli.shared.filters import parse_duration_s

    fields = copy.deepcopy(base)
    for name in (
        "name",
        "project",
        "purpose",
        "team",
        "user",
        "pool",
        "priority",
        "gang",
        "seed",
        "register",
        "resume_from",
        "preemptible",
    ):
        value = getattr(typed, name)
        if value is not None:
            fields[name] = value
    fields.setdefault("user", default_user)
    if typed.command:
        _part(fields, "runtime")["command"] = list(typed.command)
    for part, name, value in (
        ("runtime", "interpreter", typed.interpreter),
        ("resources", "device_type", typed.device),
        ("checkpoint", "every_steps", typed.every_steps),
        ("checkpoint", "keep_last", typed.keep_last),
        ("limits", "restarts", typed.restarts),
        ("limits", "run_time_s", parse_duration_s(typed.max_run_time) if typed.max_run_time else None),
    ):
        if value is not None:
            _part(fields, part)[name] = value
    if typed.parallelism is not None:
        _part(fields, "parallelism").update(sweep.parse_values(typed.parallelism.split(","), "--parallelism"))
    if typed.data:
        fields["data"] = parse_data(typed.data)
    if typed.outputs:
        fields["outputs"] = list(typed.outputs)
    if typed.env:
        _part(fields, "env").update(dict(sweep.parse_pair(e, "--env") for e in typed.env))
    if typed.labels:
        _part(fields, "labels").update(dict(sweep.parse_pair(e, "--label") for e in typed.labels))
    if typed.secrets:
        fields["secrets"] = sorted({*(fields.get("secrets") or ()), *typed.secrets})
    if typed.hyperparameters:
        _part(fields, "hyperparameters").update(sweep.parse_values(typed.hyperparameters, "--hyperparameter"))
    fields.setdefault("name", default_name(_part(fields, "runtime").get("command") or ()))
    differs = sweep.differing(typed.sweeps)
    return [_at(fields, point, differs) for point in sweep.points(typed.sweeps)]


def _at(fields: dict[str, Any], point: dict[str, sweep.Value], differs: list[str]) -> dict[str, Any]:
    if not point:
        return fields
    varied = copy.deepcopy(fields)
    if isinstance(varied["name"], str):
        varied["name"] = name_of(varied["name"], differs, point)
    _part(varied, "hyperparameters").update(point)
    return varied


def _part(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """A mapping of the spec, made where it is not there. Something else in its place is left for validation to name."""
    if fields.get(name) is None:  # an empty line of a file
        fields[name] = {}
    part = fields[name]
    return part if isinstance(part, dict) else {}


def parse_data(text: str) -> dict[str, str]:
    """`NAME@1.2.0`, `NAME@sha256:…`, each with `:SPLIT` or without, or `URI#sha256` as a reference to immutable data. Raises CliError."""
    version = DATASET.match(text)
    if version:
        return {name: value for name, value in version.groupdict().items() if value is not None}
    found = DATA.match(text)
    if not found:
        raise CliError(
            f"--data {text!r}: write a version of a dataset, as NAME@1.2.0:train, or URI#SHA256 with 64 hexadecimal digits, "
            "so that the data can never change",
            Exit.USAGE,
        )
    return {"uri": found["uri"], "sha256": found["sha256"]}


def specs_of(fields: list[dict[str, Any]], file: SpecFile | None) -> list["JobSpec"]:
    """Validated specs. Raises CliError with a sentence, and for a file its line, for each problem."""
    from pydantic import ValidationError

    from trainhouse.events import JobSpec
    from trainhouse.events.wire.validation_messages import explain_each

    specs = []
    for each in fields:
        try:
            specs.append(JobSpec.model_validate(each))
        except ValidationError as error:
            problems = [_placed(file, path, text) for path, text in explain_each(error, JobSpec)]
            raise CliError("the spec is not valid:\n" + "\n".join(f"  {p}" for p in problems), Exit.USAGE) from error
    return specs


def _placed(file: SpecFile | None, path: tuple[str | int, ...], text: str) -> str:
    return f"{file.name}:{file.line(path)}: {text}" if file else text
