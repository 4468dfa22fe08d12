"""`trainhouse models observe` and `reference`: what a version in service predicted, and the distribution that it is compared with.

Holds: rows stay here; histograms and labels alone are sent.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.models.model_options import Project, models_group
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.events import PredictionsObserved, ReferenceRecorded
    from trainhouse.workers.evaluation.drift import ProfiledRows

Version = Annotated[str, typer.Argument(metavar="NAME@V", help="NAME@3, NAME@1.2.0, NAME@champion; or PROJECT/NAME@….", show_default=False)]
Inputs = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Parquet file of inputs, a column a field; column `age` is compared with field `json.age` of a dataset."),
]
Outputs = Annotated[Optional[Path], typer.Option(help="Parquet file of outputs, a column an output.")]  # noqa: UP045


def register(app: typer.Typer) -> None:
    """Adds the commands to the group of models, which is there already."""
    group = models_group(app)
    group.command("observe")(observe)
    group.command("reference")(reference)


def observe(
    version: Version,
    since: Annotated[str, typer.Option(help="Begin of the window: 2h ago, or 2026-05-01T12:00 (UTC).", show_default=False)],
    until: Annotated[str, typer.Option(help="End of the window, not in it.")] = "0s",
    inputs: Inputs = None,
    outputs: Outputs = None,
    outcomes: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="JSON file: by metric, the value of each labelled prediction by its id."),
    ] = None,
    lower_is_better: Annotated[list[str] | None, typer.Option(help="Metric of which a smaller value is better; may be repeated.")] = None,
    event_id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--id", help="Id of the observation: the same one counts once. Default: a new one."),
    ] = None,
    project: Project = DEFAULT_PROJECT,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Send what a version in service predicted in one window: histograms of its inputs and outputs, and labels, also days late.

    \b
    trainhouse models observe digits@champion --since 1h --inputs in.parquet \\
        --outputs out.parquet
    trainhouse models observe digits@2 --since 2026-05-01T12:00 \\
        --until 2026-05-01T13:00 --outcomes labels.json
    """
    from trainhouse.cli.shared.filters import parse_time
    from trainhouse.events import PredictionsObserved
    from trainhouse.events.runtime.clock import wall_ms

    now_ms = wall_ms()
    of_window = {"window_start_ms": parse_time(since, now_ms), "window_end_ms": parse_time(until, now_ms)}
    labels = {"outcomes": _outcomes(outcomes) if outcomes else {}, "lower_is_better": lower_is_better or ()}
    event = _event(PredictionsObserved, _version_of(version, project), inputs, outputs, of_window | labels)
    if refusal := event.refusal(now_ms):
        raise CliError(f"{refusal}\nnothing was sent", Exit.USAGE)
    _send(event, event_id, json)


def reference(
    version: Version,
    source: Annotated[str, typer.Option(help="Data that it is of, for people; default: the dataset version.")] = "",
    dataset: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME@VERSION", help="Version of a dataset whose distributions are the reference of inputs."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the dataset.")] = "train",
    inputs: Inputs = None,
    outputs: Outputs = None,
    project: Project = DEFAULT_PROJECT,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Record the distribution that live inputs and outputs of a version are compared with; a later one replaces it.

    \b
    trainhouse models reference digits@2 --dataset digits@1.0.0 --split train
    trainhouse models reference digits@2 --source validation --inputs in.parquet \\
        --outputs out.parquet
    """
    from trainhouse.events import ReferenceRecorded

    if dataset is not None and inputs is not None:
        raise CliError("inputs come from --dataset or from --inputs: give one of them", Exit.USAGE)
    if dataset is None and not source:
        raise CliError("name what the reference is of: --source validation, or --dataset NAME@VERSION", Exit.USAGE)
    chosen = _version_of(version, project)
    about: dict[str, Any] = {"source": source}
    if dataset is not None:
        name, rows = _of_dataset(dataset, split)
        about = {"source": source or f"{name}/{split}", "inputs": rows.fields, "count": rows.rows}
    _send(_event(ReferenceRecorded, chosen, inputs, outputs, about), None, json)


def _of_dataset(reference: str, split: str) -> "tuple[str, ProfiledRows]":
    """The distributions of a split, of as many fields, the first ones by name, as a reference has. Raises CliError."""
    from trainhouse.cli.data.dataset_access import profiled_version
    from trainhouse.events.model.model_observations import MOST_INPUTS
    from trainhouse.workers.evaluation.drift import ProfiledRows

    known, found = profiled_version(reference)
    if split not in found.manifest.splits:
        names = ", ".join(sorted(found.manifest.splits))
        raise CliError(f"{known.version.name} has no split {split}; it has {names}: give --split", Exit.NOT_FOUND)
    profiles = found.profiles.splits.get(split) if found.profiles else None
    if not profiles:
        raise CliError(
            f"{known.version.name} was published without distributions: publish it again from its source, which adds them", Exit.REJECTED
        )
    kept = {name: profiles[name] for name in sorted(profiles)[:MOST_INPUTS]}
    return str(known.version.name), ProfiledRows(found.manifest.splits[split].samples, kept)


def _version_of(text: str, project: str) -> dict[str, Any]:
    """Project, name and ordinal of the version that is named. Raises CliError."""
    from trainhouse.cli.models.registry_commands import model_named, version_named

    name, at, selector = text.partition("@")
    if not at:
        raise CliError(f"{text!r} names no version: write NAME@3, NAME@1.2.0 or NAME@champion", Exit.USAGE)
    model = model_named(name, project)
    return {"project": model.project, "name": model.name, "version": version_named(model, selector).version}


def _event(kind: Any, of_version: dict[str, Any], inputs: Path | None, outputs: Path | None, about: dict[str, Any]) -> Any:
    """The event as it is typed, with the histograms of the files. Raises CliError."""
    import getpass

    from pydantic import ValidationError

    from trainhouse.events.wire.validation_messages import explain_validation

    counts = [about["count"]] if "count" in about else []
    for side, path in (("inputs", inputs), ("outputs", outputs)):
        if path is not None:
            found = _profiled(path)
            prefix = "json." if side == "inputs" else ""
            about = about | {side: {f"{prefix}{name}": each for name, each in found.fields.items()}}
            counts.append(found.rows)
    try:
        return kind.model_validate(of_version | about | {"count": max(counts, default=0), "user": getpass.getuser()})
    except ValidationError as error:
        raise CliError(f"{explain_validation(error, kind)}\nnothing was sent", Exit.USAGE) from error


def _profiled(path: Path) -> "ProfiledRows":
    try:
        from trainhouse.workers.evaluation.errors import InvalidEvaluationError
        from trainhouse.workers.evaluation.profiled_rows import profiled_file
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed here: pip install 'trainhouse[evaluation]'", Exit.USAGE) from error
    try:
        return profiled_file(path)
    except InvalidEvaluationError as error:
        raise CliError(f"{error}\nnothing was sent", Exit.USAGE) from error


def _outcomes(path: Path) -> Any:
    import orjson

    try:
        return orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise CliError(
            f'{path} cannot be read as JSON: {error}; write {{"accuracy": {{"PREDICTION": 1}}}}\nnothing was sent', Exit.USAGE
        ) from error


def _send(event: "PredictionsObserved | ReferenceRecorded", event_id: str | None, json: bool) -> None:
    from trainhouse.cli.shared import output
    from trainhouse.client import TrainhouseClient
    from trainhouse.events.wire.topics import OBSERVATIONS

    sent = TrainhouseClient.from_settings().models().send(event, event_id, OBSERVATIONS)
    if json:
        output.json_lines([{"event_id": sent, "version": event.version, "count": event.count}])
        return
    fields = len(event.inputs) + len(event.outputs)
    output.remark(f"{event.project}/{event.name}@{event.version}: {event.count} rows in {fields} histograms were sent as {sent}")
