"""`trainhouse models …`: versions of models, their stages, gates and approvals.

Holds: what is printed as done is what the registry decided.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.models.model_options import GROUP, Project
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir, Timeout
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.client.quick.quick_models import QuickModels, VersionRow
    from trainhouse.client.quick.quick_topics import QuickTopics
    from trainhouse.events.model.model_decisions import ModelDecision
    from trainhouse.events.model.model_registry import ModelRequest
    from trainhouse.scheduler.core.registry.registry_state import ModelEntry, Version
    from trainhouse.scheduler.core.registry.registry_view import RegistryView


ModelArgument = Annotated[str, typer.Argument(metavar="NAME", help="NAME, or PROJECT/NAME of another project.", show_default=False)]
VersionArgument = Annotated[
    str, typer.Argument(metavar="VERSION", help="Its ordinal, as 3, its semver, as 1.2.0, or champion.", show_default=False)
]
Reason = Annotated[str, typer.Option(help="Why; kept with it.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Register versions of models; promote, approve, archive and roll back by their gate.")
    group.command("register")(register_version)
    group.command("list")(list_models)
    group.command("show")(show)
    group.command("history")(history)
    group.command("diff")(diff)
    group.command("promote")(promote)
    group.command("archive")(archive)
    group.command("rollback")(rollback)
    group.command("approve")(approve)
    group.command("reject")(reject)
    group.command("review")(review)
    group.command("why")(why)
    gate = typer.Typer(no_args_is_help=True, help="Show, compare and apply the gate of a model.")
    gate.command("show")(gate_show)
    gate.command("diff")(gate_diff)
    gate.command("apply")(gate_apply)
    group.add_typer(gate, name="gate")
    app.add_typer(group, name=GROUP)


def register_version(
    name: ModelArgument,
    job: Annotated[str, typer.Argument(metavar="JOB[@COMMIT]", help="Job, and the checkpoint; default: the newest.", show_default=False)],
    bump: Annotated[Optional[str], typer.Option(help="Least step of the semver: major, minor or patch.")] = None,  # noqa: UP045
    notes: Annotated[str, typer.Option(help="Text about the version.")] = "",
    file: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--file", metavar="PATH=FILE", help="A tokenizer, preprocessing or another file; may be repeated."),
    ] = None,
    input_schema: Annotated[Optional[Path], typer.Option(help="JSON file: schema of an input.")] = None,  # noqa: UP045
    output_schema: Annotated[Optional[Path], typer.Option(help="JSON file: schema of an output.")] = None,  # noqa: UP045
    framework: Annotated[Optional[str], typer.Option(help="Framework that the weights are for, as torch 2.9.")] = None,  # noqa: UP045
    licence: Annotated[Optional[str], typer.Option(help="Licence of the weights, as an SPDX id.")] = None,  # noqa: UP045
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 60.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Register a checkpoint of a job as the next version of a model; it never changes, and keeps its checkpoint.

    \b
    trainhouse models register digits digits-1k7x3m9qp2f8d
    trainhouse models register vision/resnet train-1k7x@12 --bump minor \\
        --file tokenizer.json=bpe.json

    The semver follows from facts: major where the schemas differ, minor where data or code differ, patch else.
    """
    from trainhouse.cli.models.registration import Registration, prepared
    from trainhouse.events import ModelRegistered

    owner, model = _named(name, project)
    parts = Registration(tuple(file or ()), input_schema, output_schema, framework, licence, notes)
    content, facts = prepared(owner, job, parts)
    about = {"project": owner, "name": model, "content": content, "bump": bump, "notes": notes, **facts}
    decided = _ask(_valid(ModelRegistered, about), timeout)
    _print(decided, json, f"registered {_called(decided)}: {getattr(decided, 'semver_reason', '')}")


def list_models(
    project: Annotated[Optional[str], typer.Option(help="Only of this project.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """List models with their champions.

    \b
    trainhouse models list
    trainhouse models list --project vision --json
    """
    from trainhouse.cli.shared import output

    found = [each for each in _statuses() if project in (None, each["project"])]
    if json:
        output.json_lines(found)
        return
    if not found:
        output.remark("there are no models; `trainhouse models register NAME JOB` makes one")
        return
    rows = []
    for each in found:
        newest = each["versions"][-1] if each["versions"] else None
        shown = [f"{one['version']} ({one['semver']})" if one else "" for one in (each["champion"], newest)]
        rows.append((each["project"], each["name"], *shown, each["version_count"], each["gate"]["approvals"]))
    output.table(("project", "model", "champion", "newest", "versions", "approvals"), rows)


def show(name: ModelArgument, project: Project = DEFAULT_PROJECT, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Show the versions of a model, their stages and what speaks for them.

    \b
    trainhouse models show digits
    """
    from trainhouse.cli.shared import output

    found = _version_rows(*_named(name, project))
    if json:
        output.json_lines(each.row for each in found)
        return
    rows: list[tuple[Any, ...]] = [
        (
            each.row["version"],
            each.row["semver"],
            each.row["stage"] + (" (emergency)" if each.row["emergency"] else ""),
            f"{each.row['job_id']}@{each.row['commit']}" if each.row["commit"] else each.row["job_id"],
            output.clock(each.row["registered_at_ms"]),
            each.row["registered_by"],
            each.evaluations,
            ", ".join(each.row["approvers"]),
            ", ".join(job["job_id"] for job in each.row["evaluation_jobs"]),
        )
        for each in found
    ]
    columns: tuple[str, ...] = (
        "version",
        "semver",
        "stage",
        "checkpoint",
        "registered",
        "by",
        "evaluations",
        "approved by",
        "evaluated by",
    )
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    output.table(columns, rows, drop=("registered", "by", "checkpoint", "semver", "evaluated by"), cut="checkpoint")


def history(name: ModelArgument, project: Project = DEFAULT_PROJECT, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Show what was decided about a model, oldest first, refusals included.

    \b
    trainhouse models history digits
    """
    from trainhouse.cli.shared import output
    from trainhouse.events.model.model_registry import ModelEvent

    owner, model = _named(name, project)
    found = [each for each in _requests().history() if isinstance(each, ModelEvent) and (each.project, each.name) == (owner, model)]
    if not found:
        raise _unknown(owner, model)
    if json:
        output.json_lines(each.model_dump(mode="json") | {"type": each.event_type} for each in found)
        return
    rows = []
    for each in found:
        about = (getattr(each, of, None) or "" for of in ("version", "user"))
        rows.append((output.clock(_at_ms(each)), _word(each), *about, _detail(each)))
    output.table(("time", "decision", "version", "by", "detail"), rows)


def diff(
    name: ModelArgument,
    before: Annotated[str, typer.Argument(metavar="VERSION", show_default=False)],
    after: Annotated[str, typer.Argument(metavar="VERSION", show_default=False)],
    project: Project = DEFAULT_PROJECT,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Show how two versions of a model differ: facts and figures.

    \b
    trainhouse models diff digits 1 2
    """
    from trainhouse.cli.shared import output

    model = model_named(name, project)
    first, second = (_flat(_version_row(model, version_named(model, each))) for each in (before, after))
    rows = [(key, first.get(key, ""), second.get(key, "")) for key in sorted(first | second) if first.get(key) != second.get(key)]
    if json:
        output.json_lines({"field": key, "before": old, "after": new} for key, old, new in rows)
        return
    output.table(("field", f"version {before}", f"version {after}"), rows)


def promote(
    name: ModelArgument,
    version: VersionArgument,
    emergency: Annotated[bool, typer.Option("--emergency", help="Skip approvals alone; it is listed until it is reviewed.")] = False,
    reason: Reason = "",
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Promote a version to champion, which its gate decides; the champion before it is archived.

    \b
    trainhouse models promote digits 2 --reason "better at night"
    """
    from trainhouse.events import ModelPromotionRequested

    model = model_named(name, project)
    about = {"version": version, "emergency": emergency, "reason": reason, "champion": model.champion or 0}
    decided = _ask(_valid(ModelPromotionRequested, _about(model) | about), timeout)
    _print(decided, json, f"{_called(decided)} is champion")


def archive(
    name: ModelArgument,
    version: VersionArgument,
    reason: Reason = "",
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Archive a version that is not champion.

    \b
    trainhouse models archive digits 1
    """
    from trainhouse.events import ModelArchiveRequested

    model = model_named(name, project)
    decided = _ask(_valid(ModelArchiveRequested, _about(model) | {"version": version, "reason": reason}), timeout)
    _print(decided, json, f"{model.key}@{getattr(decided, 'version', version)} is archived")


def rollback(
    name: ModelArgument,
    reason: Annotated[str, typer.Option(help="Cause; kept with it.", show_default=False)],
    to: Annotated[Optional[str], typer.Option(help="Version to go back to; default: the champion before this one.")] = None,  # noqa: UP045
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Make a past champion champion again, at once and without a gate.

    \b
    trainhouse models rollback digits --reason "complaints since noon"
    """
    from trainhouse.events import ModelRollbackRequested

    model = model_named(name, project)
    about = {"to": to, "reason": reason, "champion": model.champion}
    decided = _ask(_valid(ModelRollbackRequested, _about(model) | about), timeout)
    _print(decided, json, f"{_called(decided)} is champion again")


def approve(
    name: ModelArgument,
    version: VersionArgument,
    evidence: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Hash of the evidence that you looked at, as `models why` prints it; other evidence refuses it."),
    ] = None,
    reason: Reason = "",
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Approve a version on the evidence that there is; new evidence voids it.

    \b
    trainhouse models approve digits 2 --reason "looked at the worst samples"
    """
    from trainhouse.events import ModelApproved

    model = model_named(name, project)
    about = {"version": version, "evidence": evidence or version_named(model, version).evidence, "reason": reason}
    decided = _ask(_valid(ModelApproved, _about(model) | about), timeout)
    _print(decided, json, f"{model.key}@{getattr(decided, 'version', version)} is approved by {decided.user}")


def reject(
    name: ModelArgument,
    version: VersionArgument,
    reason: Annotated[str, typer.Option(help="Why; kept with it.", show_default=False)],
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Reject a version: it is not promoted until you approve it, or evidence is new.

    \b
    trainhouse models reject digits 2 --reason "worse at night"
    """
    from trainhouse.events import ModelRejected

    model = model_named(name, project)
    decided = _ask(_valid(ModelRejected, _about(model) | {"version": version, "reason": reason}), timeout)
    _print(decided, json, f"{model.key}@{getattr(decided, 'version', version)} is rejected by {decided.user}")


def review(
    name: ModelArgument,
    version: VersionArgument,
    reason: Reason = "",
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Review an emergency promotion, which another person made.

    \b
    trainhouse models review digits 2 --reason "was right"
    """
    from trainhouse.events import ModelEmergencyReview

    model = model_named(name, project)
    decided = _ask(_valid(ModelEmergencyReview, _about(model) | {"version": version, "reason": reason}), timeout)
    _print(decided, json, f"the emergency promotion of {model.key}@{getattr(decided, 'version', version)} is reviewed")


def why(
    name: ModelArgument, version: VersionArgument, project: Project = DEFAULT_PROJECT, json: Json = False, data_dir: KafkaDir = None
) -> None:
    """Show each condition of the gate for a version, with its numbers; exit code 1 where one is not met.

    \b
    trainhouse models why digits 2
    """
    from trainhouse.cli.shared import output

    conditions, evidence = _conditions(*_named(name, project), version)
    if json:
        output.json_lines(conditions)
    else:
        shown = [(each["name"], "yes" if each["met"] else "no", each["detail"]) for each in conditions]
        output.table(("condition", "met", "detail"), shown)
        output.remark(f"evidence {evidence}")
    if any(not each["met"] for each in conditions):
        raise typer.Exit(Exit.FAILED)


def gate_show(name: ModelArgument, project: Project = DEFAULT_PROJECT, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Show the gate of a model, as YAML that `apply` takes.

    \b
    trainhouse models gate show digits > gate.yaml
    """
    from trainhouse.cli.shared import output

    model = model_named(name, project)
    if json:
        output.json_lines([model.gate.model_dump(mode="json") | {"gate_version": model.gate_version}])
        return
    output.remark(f"version {model.gate_version} of the gate" if model.gate_version else "the default gate")
    sys.stdout.write(_gate_yaml(model.gate))


def gate_diff(
    name: ModelArgument,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The gate as YAML.", show_default=False)],
    project: Project = DEFAULT_PROJECT,
    data_dir: KafkaDir = None,
) -> None:
    """Show how a file differs from the gate of a model; exit code 1 where it does.

    \b
    trainhouse models gate diff digits gate.yaml
    """
    import difflib

    model = model_named(name, project)
    before, after = (_gate_yaml(gate).splitlines(keepends=True) for gate in (model.gate, _gate_of(path)[0]))
    lines = list(difflib.unified_diff(before, after, fromfile=f"{model.key} version {model.gate_version}", tofile=str(path)))
    sys.stdout.writelines(lines)
    if lines:
        raise typer.Exit(Exit.FAILED)


def gate_apply(
    name: ModelArgument,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The gate as YAML.", show_default=False)],
    code: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Folder that jobs of `evaluate` start in a copy of; default: what the file names."),
    ] = None,
    reason: Reason = "",
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Apply a gate to a model: suites, limits, evaluations of new versions, lineage, age of evidence, and approvals from 0 to 2.

    \b
    trainhouse models gate apply digits gate.yaml \\
        --reason "two people from now on"
    trainhouse models gate apply digits gate.yaml --code evaluation
    """
    from trainhouse.events import ModelGateApplied

    model = model_named(name, project)
    gate, text = _gate_of(path)
    if code is not None:
        gate = _with_code(gate, code)
    about = {"gate": gate, "replaces": model.gate_version, "text": text, "reason": reason}
    decided = _ask(_valid(ModelGateApplied, _about(model) | about), timeout)
    _print(decided, json, f"the gate of {model.key} is at version {getattr(decided, 'gate_version', '')}")


def _requests() -> Any:
    from trainhouse.client import TrainhouseClient

    return TrainhouseClient.from_settings().models()


def _view() -> "RegistryView":
    from trainhouse.scheduler.core.registry.registry_view import RegistryView

    return RegistryView.of(_requests().history())


def _quick(topics: "QuickTopics") -> "QuickModels":
    from trainhouse.client.quick.quick_models import QuickModels
    from trainhouse.client.quick.quick_reads import quick_ways

    return QuickModels(topics, quick_ways().gateway)


def _statuses() -> list[dict[str, Any]]:
    """The status of each model as JSON, by project and name. Blocks."""
    from trainhouse.client.quick.quick_reads import by_topics_or

    def whole() -> list[dict[str, Any]]:
        return [model.status(0).model_dump(mode="json", exclude={"updated_at_ms"}) for model in _view().models()]

    return by_topics_or(lambda topics: _quick(topics).statuses(), whole)


def _version_rows(owner: str, model: str) -> "list[VersionRow]":
    """The versions of a model. Blocks. Raises CliError."""
    from trainhouse.client.quick.quick_reads import by_topics_or

    def whole() -> "list[VersionRow]":
        from trainhouse.client.quick.quick_models import VersionRow

        entry = _known_model(owner, model)
        return [VersionRow(_version_row(entry, version), len(version.evaluations)) for version in entry.versions]

    found = by_topics_or(lambda topics: _quick(topics).versions(owner, model), whole)
    if found is None:
        raise _unknown(owner, model)
    return found


def _conditions(owner: str, model: str, selector: str) -> tuple[list[dict[str, Any]], str]:
    """The conditions of the gate for a version as JSON, and the hash of its evidence. Blocks. Raises CliError."""
    from trainhouse.client.quick.quick_reads import by_topics_or

    def whole() -> tuple[list[dict[str, Any]], str]:
        from trainhouse.events.runtime.clock import wall_ms
        from trainhouse.scheduler.core.registry.registry_view import why as conditions_of

        entry = _known_model(owner, model)
        version = version_named(entry, selector)
        return [each.model_dump(mode="json") for each in conditions_of(entry, version, wall_ms())], version.evidence

    found = by_topics_or(lambda topics: _quick(topics).why(owner, model, selector), whole)
    if found is None:
        raise _unknown(owner, model)
    return found


def _named(text: str, project: str) -> tuple[str, str]:
    from trainhouse.events.model.model_key import ModelNameError, parse_model

    try:
        return parse_model(text, project)
    except ModelNameError as error:
        raise CliError(str(error), Exit.USAGE) from error


def _unknown(project: str, name: str) -> CliError:
    return CliError(f"project {project} has no model {name}; `trainhouse models list` shows what there is", Exit.NOT_FOUND)


def model_named(text: str, project: str) -> "ModelEntry":
    return _known_model(*_named(text, project))


def _known_model(owner: str, name: str) -> "ModelEntry":
    found = _view().find(owner, name)
    if found is None:
        raise _unknown(owner, name)
    return found


def version_named(model: "ModelEntry", selector: str) -> "Version":
    found = model.find(selector)
    if found is None:
        what = "champion" if selector == "champion" else f"version {selector}"
        raise CliError(f"model {model.key} has no {what}; `trainhouse models show {model.key}` lists them", Exit.NOT_FOUND)
    return found


def _about(model: "ModelEntry") -> dict[str, Any]:
    return {"project": model.project, "name": model.name}


def _valid(kind: Any, about: dict[str, Any]) -> Any:
    """The request as it is typed. Raises CliError."""
    import getpass

    from pydantic import ValidationError

    from trainhouse.events.wire.validation_messages import explain_validation

    try:
        return kind.model_validate(about | {"user": getpass.getuser()})
    except ValidationError as error:
        raise CliError(f"{explain_validation(error, kind)}\nnothing was sent", Exit.USAGE) from error


def _ask(event: "ModelRequest", timeout: float) -> "ModelDecision":
    from trainhouse.client import ChangeRefusedError

    try:
        decided: ModelDecision = _requests().ask(event, timeout)
    except ChangeRefusedError as refused:
        raise CliError(str(refused), Exit.REJECTED) from refused
    return decided


def _print(decided: "ModelDecision", json: bool, text: str) -> None:
    from trainhouse.cli.shared import output

    if json:
        output.json_lines([decided.model_dump(mode="json") | {"type": decided.event_type}])
    else:
        sys.stdout.write(f"{output.printable(text)}\n")


def _called(decided: Any) -> str:
    return f"{decided.project}/{decided.name}@{decided.version} ({decided.semver})"


def _at_ms(event: Any) -> int:
    return int(event.at_ms)


def _word(event: Any) -> str:
    return str(event.event_type).split(".")[2].removesuffix("-recorded").replace("-", " ")


def _detail(event: Any) -> str:
    for name in ("reason", "semver_reason"):
        if text := getattr(event, name, ""):
            return str(text)
    evaluated = getattr(event, "evaluated", None)
    if evaluated is not None:
        figures = ", ".join(f"{name} {each.value:.6g}" for name, each in evaluated.metrics.items())
        return f"{evaluated.suite}: {figures}"
    return ""


def _version_row(model: "ModelEntry", version: "Version") -> dict[str, Any]:
    return {
        **_about(model),
        "version": version.version,
        "semver": version.semver,
        "stage": version.stage.value,
        "registered_by": version.registered_by,
        "registered_at_ms": version.registered_at_ms,
        "emergency": version.emergency,
        "approvers": list(version.approvers),
        "evidence": version.evidence,
        **version.facts.model_dump(mode="json", exclude={"project"}),
        "evaluation_jobs": [each.as_row() for each in version.jobs],
        "metrics": {each.suite: {name: figure.value for name, figure in each.metrics.items()} for each in version.evaluations},
    }


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return found


def _with_code(gate: Any, folder: Path) -> Any:
    """The gate whose evaluations start in a copy of a folder, which is stored. Raises CliError."""
    from trainhouse.cli.shared.code_upload import upload
    from trainhouse.client import TrainhouseClient

    if not gate.evaluate:
        raise CliError("--code is for the jobs of `evaluate`, which the file does not have; leave it away", Exit.USAGE)
    archive = upload(TrainhouseClient.from_settings(), folder)
    return gate.model_copy(update={"evaluate": tuple(each.model_copy(update={"code": archive}) for each in gate.evaluate)})


def _gate_yaml(gate: Any) -> str:
    import yaml

    return str(yaml.safe_dump(gate.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def _gate_of(path: Path) -> tuple[Any, str]:
    """The gate that a file holds, and the file. Raises CliError."""
    import yaml
    from pydantic import ValidationError

    from trainhouse.events import ModelGate
    from trainhouse.events.wire.validation_messages import explain_validation

    try:
        text = path.read_text()
        return ModelGate.model_validate(yaml.safe_load(text) or {}), text
    except ValidationError as error:
        raise CliError(f"{path}: {explain_validation(error, ModelGate)}\nnothing was applied", Exit.USAGE) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CliError(f"{path} cannot be read as YAML: {error}\nnothing was applied", Exit.USAGE) from error
