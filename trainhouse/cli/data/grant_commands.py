"""`trainhouse data grant|revoke|grants`: which other projects may use a dataset, for which purpose.

Holds: what is printed as granted or revoked is what intake answered.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.data.dataset_access import dataset_versions
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir, Timeout

if TYPE_CHECKING:
    from trainhouse.client.dataset_versions import DatasetVersions
    from trainhouse.events import DatasetGranted, DatasetGrantRevoked

GrantedArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION]", help="NAME@sha256:… or NAME@1.2.0; NAME alone: all its versions, later ones too.", show_default=False
    ),
]
ProjectOption = Annotated[str, typer.Option(help="The other project.", show_default=False)]
PurposeOption = Annotated[
    str, typer.Option(help="What its jobs may use it for: one of the version's purposes, if it has any.", show_default=False)
]
ReasonOption = Annotated[str, typer.Option(help="Why; kept with it.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("grant")(grant)
    app.command("revoke")(revoke)
    app.command("grants")(list_grants)


def grant(
    version: GrantedArgument,
    project: ProjectOption,
    purpose: PurposeOption,
    reason: ReasonOption = "",
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Grant a version, or all versions, to another project for a purpose; its jobs may then name it.

    \b
    trainhouse data grant speech@1.0.0 --project vision --purpose research
    trainhouse data grant speech --project vision --purpose research \\
        --reason "joint work on lips"
    """
    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import GrantDataset
    from trainhouse.events.model.dataset_grant import GrantKey

    asked = _asked(GrantDataset, version, project, purpose, reason, "granted")
    try:
        granted = TrainhouseClient.from_settings().fleet().grant_dataset(asked, timeout)
    except ChangeRefusedError as refused:
        raise CliError(str(refused), Exit.REJECTED) from refused
    if json:
        output.json_lines([asked.model_dump(mode="json", exclude={"admission_partitions"}) | {"new": granted is not None}])
        return
    if granted is None:
        output.remark("it was granted before: nothing changed")
    sys.stdout.write(f"project {project} may use {GrantKey.of(asked).reference} for {purpose}\n")


def revoke(
    version: GrantedArgument,
    project: ProjectOption,
    purpose: PurposeOption,
    reason: ReasonOption = "",
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Revoke a grant: no new job is admitted by it, and ranks that run get no further access by it.

    \b
    trainhouse data revoke speech@1.0.0 --project vision --purpose research \\
        --reason "the paper is out"
    """
    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import RevokeDatasetGrant
    from trainhouse.events.model.dataset_grant import GrantKey

    asked = _asked(RevokeDatasetGrant, version, project, purpose, reason, "revoked")
    key = GrantKey.of(asked)
    try:
        revoked = TrainhouseClient.from_settings().fleet().revoke_grant(asked, timeout)
    except ChangeRefusedError as refused:
        raise CliError(str(refused), Exit.REJECTED) from refused
    if json:
        output.json_lines([revoked.model_dump(mode="json", exclude={"admission_partitions"})])
        return
    sys.stdout.write(f"project {project} may not use {key.reference} for {purpose} any more\n")
    if dataset_versions().grants.covers(key):
        output.remark(f"but it has a grant of all versions of {key.dataset} for {purpose}, which holds")


def list_grants(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="NAME[@VERSION]", help="Only of this dataset, or those that cover this version.", show_default=False),
    ] = None,
    project: Annotated[Optional[str], typer.Option(help="Only those that this project has.", show_default=False)] = None,  # noqa: UP045
    every: Annotated[bool, typer.Option("--all", help="Also those that were revoked.")] = False,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """List grants of datasets to other projects.

    \b
    trainhouse data grants
    trainhouse data grants speech@1.0.0 --all --json
    """
    from trainhouse.cli.shared import output

    versions = dataset_versions()
    dataset, sha256 = (None, None) if name is None else _named(versions, name, "listed")
    table = versions.grants
    found: list[DatasetGranted | DatasetGrantRevoked] = [*table.held.values(), *(table.revoked.values() if every else ())]
    chosen = [
        each
        for each in sorted(found, key=lambda e: (e.dataset, e.number))
        if dataset in (None, each.dataset) and project in (None, each.project) and (sha256 is None or each.sha256 in (None, sha256))
    ]
    if json:
        output.json_lines(map(_row, chosen))
        return
    if not chosen:
        output.remark(
            f"no grant of {name or 'any dataset'}{f' to project {project}' if project else ''}; `trainhouse data grant` gives one"
        )
        return
    output.table(
        ("version", "owner", "project", "purpose", "since", "by", "reason", "revoked"),
        (_cells(versions, each) for each in chosen),
        drop=("reason", "by", "since", "purpose"),
    )


def _asked(kind: Any, reference: str, project: str, purpose: str, reason: str, done: str) -> Any:
    """The request as it is typed. Raises CliError."""
    import getpass

    from pydantic import ValidationError

    from trainhouse.events.wire.validation_messages import explain_validation

    dataset, sha256 = _named(dataset_versions(), reference, done)
    about = {"dataset": dataset, "sha256": sha256, "project": project, "purpose": purpose, "reason": reason, "user": getpass.getuser()}
    try:
        return kind.model_validate(about)
    except ValidationError as error:
        raise CliError(f"{explain_validation(error, kind)}\nnothing was {done}", Exit.USAGE) from error


def _named(versions: "DatasetVersions", reference: str, done: str) -> tuple[str, str | None]:
    """A dataset, and the hash of its version where one is named. Raises CliError."""
    from trainhouse.events.model.version_names import DatasetNameError

    try:
        found = versions.grantable(reference)
    except DatasetNameError as error:
        raise CliError(f"{error}\nnothing was {done}", Exit.USAGE) from error
    if found is None:
        what = "version" if "@" in reference else "dataset"
        raise CliError(f"there is no {what} {reference}; `trainhouse data list` shows what there is. Nothing was {done}", Exit.NOT_FOUND)
    return found


def _row(event: "DatasetGranted | DatasetGrantRevoked") -> dict[str, Any]:
    from trainhouse.events.model.dataset_grant_table import GRANT_REVOKED

    return event.model_dump(mode="json", exclude={"admission_partitions", "number"}) | {"revoked": event.event_type == GRANT_REVOKED}


def _cells(versions: "DatasetVersions", event: "DatasetGranted | DatasetGrantRevoked") -> tuple[Any, ...]:
    from trainhouse.cli.shared import output
    from trainhouse.events.model.dataset_grant_table import GRANTED
    from trainhouse.events.model.version_names import VersionName

    known = versions.by_name.get(VersionName(event.dataset, sha256=event.sha256)) if event.sha256 else None
    version = "" if not event.sha256 else known.tags[-1] if known is not None and known.tags else f"sha256:{event.sha256[:12]}…"
    holds = event.event_type == GRANTED
    at_ms = event.granted_at_ms if holds else event.revoked_at_ms  # type: ignore[union-attr]
    over = "" if holds else "yes"
    named = f"{event.dataset}@{version}" if version else f"{event.dataset} (all versions)"
    return named, event.owner, event.project, event.purpose, output.clock(at_ms), event.user, event.reason, over
