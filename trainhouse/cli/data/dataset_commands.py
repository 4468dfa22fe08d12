"""`trainhouse data …`: datasets in versions that never change: publish, look at, compare, check and deprecate them.

Holds: shards and manifest are in the store before anything is sent; what is printed as published is what intake answered.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.data.dataset_access import (
    SHORT_CHARS,
    VersionArgument,
    dataset_versions,
    explained,
    known_version,
    object_store,
    opened_version,
    shown_version,
    source_root,
)
from trainhouse.cli.data.drift_command import drift, record_drift
from trainhouse.cli.data.export_command import export
from trainhouse.cli.data.grant_commands import register as register_grants
from trainhouse.cli.data.join_command import join
from trainhouse.cli.data.quarantine import register as register_quarantine
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir, Timeout
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.client.dataset_versions import PublishedVersion
    from trainhouse.events import PublishDataset
    from trainhouse.workers.data.publishing.publication import Terms
    from trainhouse.workers.data.publishing.split_rule import SplitRule
    from trainhouse.workers.data.publishing.time_split import TimeSplitRule

BEGINNING_BYTES = 60


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Publish datasets in versions that never change; show, compare, verify and grant them.")
    group.command("publish")(publish)
    group.command("list")(list_versions)
    group.command("show")(show)
    group.command("sample")(sample)
    group.command("diff")(diff)
    group.command("drift")(drift)
    group.command("export")(export)
    group.command("join")(join)
    group.command("verify")(verify)
    group.command("deprecate")(deprecate)
    register_grants(group)
    register_quarantine(group)
    app.add_typer(group, name="data")


def publish(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the dataset.", show_default=False)],
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH|s3://BUCKET/PREFIX",
            help="Folder of files, or .jsonl, .csv, .parquet or .tar files; of this machine, or of the stack's object store.",
            show_default=False,
        ),
    ],
    split: Annotated[str, typer.Option(help="Splits with their shares, which make 1.")] = "train=1",
    by: Annotated[
        str,
        typer.Option(
            "--by-hash-of", "--group", help="Samples with the same value of this column stay in one split; `folder`: those of one folder."
        ),
    ] = "sample",
    by_time: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--split-by-time",
            metavar="COLUMN",
            help="Split by the time in this column (ISO 8601, or a number); --split train,test=2026-06-01 then names when each begins.",
        ),
    ] = None,
    version: Annotated[Optional[str], typer.Option(help="Tag of the version, as 1.2.0; the first to take it has it.")] = None,  # noqa: UP045
    licence: Annotated[str, typer.Option(help="Licence of the data.")] = "",
    purpose: Annotated[Optional[list[str]], typer.Option(help="What jobs may use it for; may be repeated. Default: anything.")] = None,  # noqa: UP045
    project: Annotated[str, typer.Option(help="Project that owns the dataset.")] = DEFAULT_PROJECT,
    shard_mib: Annotated[int, typer.Option(min=1, max=4096, help="Most MiB of a shard; shards of a split are of about equal size.")] = 128,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Publish a version of a dataset: shards and manifest into the object store, then its name for jobs.

    \b
    trainhouse data publish speech corpus/ --split train=0.9,validation=0.1 \\
        --version 1.0.0
    trainhouse data publish chats chats.jsonl --group user \\
        --split train=0.95,test=0.05
    trainhouse data publish web s3://crawl/2026-05 --split train=0.99,test=0.01
    trainhouse data publish sales sales.parquet --split-by-time sold_at \\
        --split train,test=2026-06-01

    Jobs name it in their spec as `data: {dataset: speech@1.0.0, split: train}`. The same input has the same id on any machine, and
    published again, changes nothing. Interrupted, run it again: it goes on from the shards that are there.
    """
    import getpass

    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import PublishDataset
    from trainhouse.events.model.dataset import version_of
    from trainhouse.workers.data.publishing.noted_store import NotedStore
    from trainhouse.workers.data.publishing.publication import Publication, Terms
    from trainhouse.workers.data.publishing.sources import source_of

    terms = Terms(licence, tuple(purpose or ()))
    _valid_names(name, version, terms, project)
    fleet = TrainhouseClient.from_settings().fleet()
    with NotedStore(object_store(), project) as noted:
        with explained("\nnothing was published"):
            publication = Publication(source_of(source_root(path)), _split_rule(split, by, by_time), terms, shard_mib << 20)
            manifest = publication.publish(noted, project, _progress())
            noted.check()
        asked = PublishDataset(version=version_of(manifest, name, project), semver=version, user=getpass.getuser())
        try:
            published = fleet.publish_dataset(asked, timeout)
        except ChangeRefusedError as refused:
            raise CliError(str(refused), Exit.REJECTED) from refused
    if json:
        output.json_lines([asked.version.model_dump(mode="json") | {"semver": version, "new": published is not None}])
    else:
        _print_published(asked, published is None)
    record_drift(asked)


def _split_rule(split: str, by: str, by_time: str | None) -> "SplitRule | TimeSplitRule":
    """The rule as it is typed. Raises CliError, InvalidDataError."""
    from trainhouse.workers.data.publishing.split_rule import OF_SAMPLE, SplitRule
    from trainhouse.workers.data.publishing.time_split import TimeSplitRule

    if by_time is None:
        return SplitRule.parse(split, by)
    if by != OF_SAMPLE:
        raise CliError(
            "--split-by-time excludes --by-hash-of and --group: a group may have samples of two times; nothing was published", Exit.USAGE
        )
    return TimeSplitRule.parse(split, by_time)


def _print_published(asked: "PublishDataset", before: bool) -> None:
    from trainhouse.cli.shared import output

    if before:
        output.remark("it was published before: nothing changed")
    tag = f" ({asked.version.dataset}@{asked.semver})" if asked.semver else ""
    sys.stdout.write(f"{asked.version.name}{tag}\n")
    for split_name, size in asked.version.splits.items():
        output.remark(f"{split_name}: {size.samples} samples, {size.bytes / 2**20:.1f} MiB in {size.shards} shards")


def list_versions(
    name: Annotated[Optional[str], typer.Argument(metavar="NAME", help="Only of this dataset.", show_default=False)] = None,  # noqa: UP045
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """List versions of datasets, the newest of each last.

    \b
    trainhouse data list
    trainhouse data list speech --json
    """
    from trainhouse.cli.shared import output

    found = [v for key, v in dataset_versions().by_name.items() if name in (None, key.dataset)]
    found.sort(key=lambda v: (v.version.dataset, v.published_at_ms))
    if json:
        output.json_lines(map(_row, found))
        return
    if not found:
        output.remark(f"no version of {name or 'any dataset'} was published; `trainhouse data publish NAME PATH` publishes one")
        return
    columns = ("dataset", "tags", "sha256", "samples", "MiB", "splits", "project", "published", "by", "deprecated")
    drop = ("by", "project", "splits", "published", "deprecated", "MiB", "tags")
    output.table(columns, map(_cells, found), right=("samples", "MiB"), drop=drop)


def show(version: VersionArgument, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Show a version: its fields, splits, source and terms, from its manifest.

    \b
    trainhouse data show speech@1.0.0
    """
    from trainhouse.cli.shared import output

    known, manifest = shown_version(version)
    if json:
        output.json_lines([_row(known) | {"manifest": manifest.model_dump(mode="json")}])
        return
    facts = known.version
    sys.stdout.write(f"{facts.name}\n")
    for label, text in (
        ("tags", ", ".join(known.tags)),
        ("project", facts.project),
        ("published", f"{output.clock(known.published_at_ms)} UTC by {known.created_by}"),
        ("deprecated", known.deprecated.reason if known.deprecated else ""),
        ("quarantine", f"{len(known.quarantined)} shards: `trainhouse data quarantine list`" if known.quarantined else ""),
        ("licence", manifest.licence),
        ("purposes", ", ".join(manifest.purposes)),
        ("samples", f"{manifest.row_count}, {manifest.bytes / 2**20:.1f} MiB in shards"),
        ("split rule", manifest.split_rule),
        ("schema hash", manifest.schema_hash),
        *(("source", f"{s.kind} of {s.files} files, {s.bytes / 2**20:.1f} MiB") for s in manifest.sources),
    ):
        if text:
            sys.stdout.write(f"{label:<12} {output.printable(text)}\n")
    sys.stdout.write("\n")
    splits = sorted(manifest.splits.items())
    output.table(
        ("split", "samples", "MiB", "shards"),
        ((n, s.samples, f"{s.bytes / 2**20:.1f}", len(s.shards)) for n, s in splits),
        right=("samples", "MiB", "shards"),
    )
    sys.stdout.write("\n")
    output.table(("field", "type", "optional"), ((f.name, f.type, "yes" if f.optional else "") for f in manifest.fields))


def sample(
    version: VersionArgument,
    split: Annotated[str, typer.Option(help="Split of the sample.")] = "train",
    at: Annotated[int, typer.Option(min=0, help="Place of the sample in the split, from 0.")] = 0,
    field: Annotated[Optional[str], typer.Option(help="Write the bytes of this field, and nothing else.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Show one sample, read from its shard by one request.

    \b
    trainhouse data sample speech@1.0.0 --split validation --at 17
    trainhouse data sample faces@1.0.0 --field jpg > face.jpg
    """
    from trainhouse.cli.shared import output
    from trainhouse.workers.data.published_data import stored_sample

    known, manifest = opened_version(version)
    chosen = manifest.splits.get(split)
    if chosen is None:
        raise CliError(f"{known.version.name} has no split {split}; it has: {', '.join(sorted(manifest.splits))}", Exit.NOT_FOUND)
    if at >= chosen.samples:
        raise CliError(f"split {split} has {chosen.samples} samples: use --at 0 to {chosen.samples - 1}", Exit.NOT_FOUND)
    with explained():
        found = stored_sample(object_store(), known.version.project, chosen, at)
    if field is not None:
        if field not in found.fields:
            raise CliError(f"sample {found.key} has no field {field}; it has: {', '.join(found.fields)}", Exit.NOT_FOUND)
        sys.stdout.buffer.write(found.fields[field])
    elif json:
        output.json_lines([{"key": found.key, "fields": {name: len(content) for name, content in found.fields.items()}}])
    else:
        sys.stdout.write(f"{output.printable(found.key)}\n")
        output.table(("field", "bytes", "begins with"), ((n, len(c), _beginning(c)) for n, c in found.fields.items()), right=("bytes",))


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="NAME@VERSION.", show_default=False)],
    after: Annotated[str, typer.Argument(metavar="B", help="NAME@VERSION.", show_default=False)],
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Compare two versions: fields, splits, terms, and how many shards they share.

    \b
    trainhouse data diff speech@1.0.0 speech@1.1.0
    """
    from trainhouse.cli.shared import output
    from trainhouse.workers.data.publishing.manifest_differences import differences

    (_, old), (_, new) = opened_version(before), opened_version(after)
    found = differences(old, new)
    if json:
        output.json_lines([{"what": what, "before": a, "after": b} for what, a, b in found])
    elif found:
        output.table(("what", before, after), found)
    else:
        output.remark("equal: both names are of one version")


def verify(version: VersionArgument, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Read all shards of a version in the object store and compare their hashes; code 1 where one is missing or damaged.

    \b
    trainhouse data verify speech@1.0.0
    """
    from trainhouse.cli.shared import output
    from trainhouse.workers.data.stored_versions import problems_of, shards_of

    known, manifest = opened_version(version)
    objects = object_store()
    count, problems = 0, []
    for split, shard in shards_of(manifest):
        count += 1
        problems += [
            {"split": split, "shard": shard.sha256, "problem": problem} for problem in problems_of(objects, known.version.project, shard)
        ]
    if json:
        output.json_lines([{"version": str(known.version.name), "shards": count, "problems": problems}])
    for problem in problems:
        output.remark(f"split {problem['split']}: {problem['problem']}")
    if problems:
        raise CliError(
            f"{known.version.name} is damaged: remove the objects that are named above, and publish it again from its source", Exit.FAILED
        )
    if not json:
        sys.stdout.write(f"{known.version.name}: {count} shards are whole\n")


def deprecate(
    version: VersionArgument,
    reason: Annotated[str, typer.Option(help="Why; those whose jobs are refused read this.")],
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Let no new job name a version, for ever; admitted jobs go on, and its shards stay.

    \b
    trainhouse data deprecate speech@1.0.0 \\
        --reason "labels of March were wrong; use 1.1.0"
    """
    import getpass

    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import DeprecateDataset

    known = known_version(version)
    if known.deprecated is not None:
        output.remark(f"it is deprecated already: {output.printable(known.deprecated.reason)}")
        return
    if not 1 <= len(reason) <= 1024:
        raise CliError("--reason: write 1 to 1024 characters; nothing was sent", Exit.USAGE)
    facts = known.version
    asked = DeprecateDataset(dataset=facts.dataset, sha256=facts.sha256, user=getpass.getuser(), reason=reason)
    try:
        deprecated = TrainhouseClient.from_settings().fleet().deprecate_dataset(asked, timeout)
    except ChangeRefusedError as refused:
        raise CliError(str(refused), Exit.REJECTED) from refused
    if json:
        output.json_lines([deprecated.model_dump(mode="json")])
    else:
        sys.stdout.write(f"{facts.name} is deprecated\n")


def _valid_names(name: str, semver: str | None, terms: "Terms", project: str) -> None:
    """Judges what is typed before a source is read for hours. Raises CliError."""
    from pydantic import ValidationError

    from trainhouse.events.model.dataset import DatasetVersion, PublishDataset, SplitSize
    from trainhouse.events.wire.validation_messages import explain_validation

    none = "0" * 64
    try:
        facts = DatasetVersion(
            dataset=name,
            sha256=none,
            project=project,
            schema_hash=none,
            split_config_hash=none,
            splits={"train": SplitSize(samples=0, bytes=0, shards=0)},
            row_count=0,
            bytes=0,
            licence=terms.licence,
            purposes=terms.purposes,
        )
        PublishDataset(version=facts, semver=semver)
    except ValidationError as error:
        raise CliError(f"{explain_validation(error, PublishDataset)}\nnothing was published", Exit.USAGE) from error


def _progress() -> "Callable[[int, int], None]":
    """Reports on a terminal, on one line."""
    if not sys.stderr.isatty():
        return lambda samples, size: None
    return lambda samples, size: print(f"{samples} samples, {size / 2**20:.0f} MiB written", end="\r", file=sys.stderr)


def _beginning(content: bytes) -> str:
    """The first characters of a text, or bytes of anything else."""
    from trainhouse.cli.shared import output

    head = content[:BEGINNING_BYTES]
    text = head.decode(errors="ignore")
    return output.one_line(text, BEGINNING_BYTES) if text.isprintable() and text else head[:16].hex(" ")


def _row(known: "PublishedVersion") -> dict[str, Any]:
    facts = known.version.model_dump(mode="json")
    about = {"version": str(known.version.name), "tags": known.tags, "deprecated": known.deprecated.reason if known.deprecated else None}
    return facts | about | {"created_by": known.created_by, "published_at_ms": known.published_at_ms}


def _cells(known: "PublishedVersion") -> tuple[Any, ...]:
    from trainhouse.cli.shared import output

    facts = known.version
    return (
        facts.dataset,
        ", ".join(known.tags),
        f"{facts.sha256[:SHORT_CHARS]}…",
        facts.row_count,
        f"{facts.bytes / 2**20:.1f}",
        ", ".join(facts.splits),
        facts.project,
        output.clock(known.published_at_ms),
        known.created_by,
        known.deprecated.reason if known.deprecated else "",
    )
