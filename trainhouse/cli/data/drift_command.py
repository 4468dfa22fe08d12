"""`trainhouse data drift`: how a version differs in its values from an earlier one, or from the one that a job trains on.

Holds: it reads manifests and profiles alone, and no sample.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainhouse.client.dataset_versions import PublishedVersion
    from trainhouse.events import PublishDataset
    from trainhouse.events.model.dataset_drift import FieldDrift
    from trainhouse.events.model.dataset_profile import ProfiledVersion

    _Opened = tuple[PublishedVersion, ProfiledVersion]

DAY_S: Final = 86_400


def drift(
    version: Annotated[str, typer.Argument(metavar="A", help="NAME@VERSION.", show_default=False)],
    against: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="B", help="NAME@VERSION, or a job: the version that it reads. Default: the one before A.", show_default=False
        ),
    ] = None,
    split: Annotated[Optional[str], typer.Option(help="Only this split of both; default: all together.")] = None,  # noqa: UP045
    psi: Annotated[float, typer.Option(min=0, help="Least PSI that is drift, however many samples there are.")] = 0.1,
    ks: Annotated[float, typer.Option(min=0, max=1, help="Least KS statistic that is drift, likewise.")] = 0.1,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Show which fields of version A have other values than in B: distributions, missing, new and lost values, types.

    \b
    trainhouse data drift speech@1.1.0
    trainhouse data drift speech@1.1.0 speech@1.0.0 --split train
    trainhouse data drift speech@1.1.0 my-job

    PSI and KS have limits that grow as samples get fewer: of 100 pairs of versions without drift, about one has a field that is called
    DRIFTED. It reads distributions that `publish` wrote; a version that was published before it did has none.
    """
    from trainhouse.cli.data.dataset_access import explained
    from trainhouse.cli.shared import output
    from trainhouse.events.runtime.clock import wall_ms
    from trainhouse.workers.data.drift.distributions import DriftLimits
    from trainhouse.workers.data.drift.version_drift import drift_of

    (new, after), (old, before) = _compared(version, against)
    with explained():
        found = drift_of(before, after, DriftLimits(psi=psi, ks=ks), split)
    age_s = max(0, wall_ms() - new.published_at_ms) / 1000
    if json:
        about = {"version": str(new.version.name), "against": str(old.version.name), "age_s": age_s}
        sizes = {"row_count": found.row_count, "row_count_before": found.row_count_before}
        output.json_lines([about | sizes | {"fields": [field.model_dump(mode="json") for field in found.fields]}])
        return
    change = 100 * (found.row_count / found.row_count_before - 1) if found.row_count_before else 0.0
    for label, text in (
        ("version", str(new.version.name)),
        ("against", str(old.version.name)),
        ("samples", f"{found.row_count}, {found.row_count_before} before ({change:+.1f} %)"),
        ("age", f"{age_s / DAY_S:.1f} days, {(new.published_at_ms - old.published_at_ms) / 1000 / DAY_S:.1f} after the other"),
    ):
        sys.stdout.write(f"{label:<8} {text}\n")
    sys.stdout.write("\n")
    show_fields(found.fields)
    if all(field.verdict == "UNKNOWN" for field in found.fields):
        output.remark("one of the two was published before there were distributions: publish it again from its source, which adds them")


def show_fields(fields: "Sequence[FieldDrift]") -> None:
    """Prints a line a field, then the reasons."""
    from trainhouse.cli.shared import output

    columns = ("field", "verdict", "PSI", "KS", "missing %")
    output.table(columns, map(_cells, fields), right=columns[2:], drop=columns[:1:-1], cut="field")
    for field in fields:
        if field.reason:
            sys.stdout.write(f"{output.printable(field.field)}: {output.printable(field.reason)}\n")


def record_drift(asked: "PublishDataset") -> None:
    """Compares a version that was just published with those before it, for SQL and alerts; what fails is a remark."""
    from trainhouse.checkpointing.errors import CheckpointError
    from trainhouse.cli.data.dataset_access import dataset_versions, object_store
    from trainhouse.cli.data.drift_recording import comparisons, send_comparisons
    from trainhouse.cli.shared import output
    from trainhouse.client import NotReachableError, TrainhouseClient
    from trainhouse.events.model.errors import BusUnavailableError
    from trainhouse.workers.data.errors import DamagedShardError

    def passed_over(name: str, error: Exception) -> None:
        output.remark(f"it was not compared with {name}: {error}")

    try:
        made = list(comparisons(asked.version, dataset_versions(), object_store(), asked.user, passed_over))
        send_comparisons(TrainhouseClient.from_settings().kafka, made)
    except (BusUnavailableError, NotReachableError, CheckpointError, DamagedShardError, ValueError) as error:
        output.remark(f"its drift was not recorded: {error}; publish it again to record it")
        return
    for event in made:
        if event.predecessor and event.fields_drifted + event.fields_changed:
            shown = f"{event.fields_drifted} of {event.fields_compared} fields drifted, {event.fields_changed} are other ones"
            output.remark(f"against the version before it, {shown}; `trainhouse data drift {asked.version.name}` shows them")


def _compared(version: str, against: str | None) -> "tuple[_Opened, _Opened]":
    """Both versions with their profiles. Raises CliError."""
    from trainhouse.cli.data.dataset_access import dataset_versions, profiled_version

    after = profiled_version(version)
    name = after[0].version.name
    if against is None:
        predecessor = dataset_versions().predecessor(name)
        if predecessor is None:
            raise CliError(
                f"{name} has no version before it that is not deprecated; name one, or a job, as the second argument", Exit.USAGE
            )
        return after, profiled_version(str(predecessor.version.name))
    return after, profiled_version(against if "@" in against else _trained_on(against))


def _trained_on(job: str) -> str:
    """The version that a job reads. Raises CliError."""
    from trainhouse.client import TrainhouseClient

    spec = TrainhouseClient.from_settings().spec(job)
    if spec is None:
        raise CliError(f"there is no job {job}; name a version as NAME@1.2.0, or a job that reads one", Exit.NOT_FOUND)
    if spec.data is None or spec.data.dataset is None:
        raise CliError(f"job {job} reads no version of a dataset; name a version as NAME@1.2.0", Exit.USAGE)
    return spec.data.dataset


def _cells(field: "FieldDrift") -> tuple[Any, ...]:
    before, now = 100 * field.missing_before, 100 * field.missing
    missing = f"{before:.1f} → {now:.1f}" if round(before, 1) != round(now, 1) else f"{now:.1f}"
    psi, ks = _figure(field.psi, field.psi_limit), _figure(field.ks, field.ks_limit)
    return field.field, field.verdict.value, psi, ks, missing


def _figure(value: float | None, limit: float | None) -> str:
    """A figure, and its limit where it is beyond it."""
    if value is None or limit is None:
        return ""
    text = f"{value:.3f}" if value < 9.9995 else f"{value:.1f}"
    return f"{text} > {limit:.2f}" if value > limit else text
