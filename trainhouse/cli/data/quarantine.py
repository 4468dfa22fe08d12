"""`trainhouse data quarantine …`: shards that ranks could not read: their evidence, release, and bytes fetched again.

Holds: a shard gets no other bytes than those that its version's manifest names; a release is what intake answered.
"""

import sys
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
    source_root,
)
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir, Timeout

if TYPE_CHECKING:
    from trainhouse.client.dataset_versions import PublishedVersion
    from trainhouse.events import ShardQuarantined

ShardOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--shard", help="Only this shard, by its hash or the beginning of it; may be repeated.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Show, mend and release shards that ranks could not read.")
    group.command("list")(list_shards)
    group.command("release")(release)
    group.command("rebuild")(rebuild)
    app.add_typer(group, name="quarantine")


def list_shards(
    version: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="NAME[@VERSION]", help="Only of this dataset, or of this version.", show_default=False),
    ] = None,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """List shards in quarantine, with what was expected of each and what was seen.

    \b
    trainhouse data quarantine list
    trainhouse data quarantine list speech@1.0.0
    """
    from trainhouse.cli.shared import output

    if version is not None and "@" in version:
        versions = [known_version(version)]
    else:
        versions = [v for key, v in dataset_versions().by_name.items() if version in (None, key.dataset)]
        if version is not None and not versions:
            raise CliError(f"there is no dataset {version}; `trainhouse data list` shows what there is", Exit.NOT_FOUND)
    found = [(known, shard) for known in versions for shard in known.quarantined.values()]
    if json:
        output.json_lines([_row(known, shard) for known, shard in found])
        return
    if not found:
        output.remark("no shard is in quarantine")
        return
    columns = ("version", "shard", "split", "fault", "sample", "expected", "seen", "job", "rank", "node", "since")
    output.table(
        columns,
        (_cells(known, shard) for known, shard in found),
        right=("rank",),
        drop=("expected", "seen", "node", "rank", "split", "since", "job"),
    )


def release(
    version: VersionArgument,
    shard: ShardOption = None,
    reason: Annotated[str, typer.Option(help="Why; kept with the release.")] = "",
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Take shards of a version out of quarantine: those that are named, else all.

    \b
    trainhouse data quarantine release speech@1.0.0 --shard 3f2a \\
        --reason "a disk of node-7 lied"
    """
    known = known_version(version)
    _release(known, _chosen(known, shard), reason, timeout, json=json)


def rebuild(
    version: VersionArgument,
    shard: ShardOption = None,
    source: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--from",
            metavar="PATH|s3://BUCKET/PREFIX",
            help="Source that the version was published from, or a folder of its shards as HASH.tar and HASH.idx. Default: the store, "
            "where the shards may be whole again.",
            show_default=False,
        ),
    ] = None,
    shard_mib: Annotated[int, typer.Option(min=1, max=4096, help="Most MiB of a shard, as it was published.")] = 128,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Write the bytes of shards again, where their hashes are those of the manifest, and release them; code 1 where one stays damaged.

    \b
    trainhouse data quarantine rebuild speech@1.0.0 --from corpus/
    trainhouse data quarantine rebuild speech@1.0.0 --from /backup/shards \\
        --shard 3f2a
    """
    from trainhouse.cli.shared import output
    from trainhouse.workers.data.publishing.rebuilding import rebuild_shards

    known, manifest = opened_version(version)
    chosen = _chosen(known, shard)
    with explained("\nnothing was released"):
        root = None if source is None else source_root(source)
        damaged = rebuild_shards(object_store(), known.version.project, manifest, chosen, root, shard_mib << 20)
    whole = [each for each in chosen if each not in damaged]
    if whole:
        _release(known, whole, "its bytes in the store are those of the manifest", timeout, json=json)
    for problems in damaged.values():
        for problem in problems:
            output.remark(problem)
    if damaged:
        way_out = "give their source or a folder that has them with --from"
        if source is not None:
            way_out = f"{source} has other shards: give the --shard-mib of the publication (now {shard_mib}), or another --from"
        raise CliError(
            f"{len(damaged)} shards of {known.version.name} are still damaged, and stay in quarantine: {way_out}, "
            "or publish another version",
            Exit.FAILED,
        )


def _chosen(known: "PublishedVersion", named: list[str] | None) -> list[str]:
    """Hashes of the shards in quarantine that are meant. Raises CliError."""
    if not known.quarantined:
        raise CliError(f"no shard of {known.version.name} is in quarantine", Exit.NOT_FOUND)
    if not named:
        return list(known.quarantined)
    chosen: dict[str, None] = {}
    for beginning in named:
        found = [each for each in known.quarantined if each.startswith(beginning)]
        if len(found) != 1:
            listed = ", ".join(each[:SHORT_CHARS] for each in known.quarantined)
            why = "is not in quarantine" if not found else "is the beginning of several"
            raise CliError(f"shard {beginning} of {known.version.name} {why}; there are: {listed}", Exit.NOT_FOUND)
        chosen[found[0]] = None
    return list(chosen)


def _release(known: "PublishedVersion", shards: list[str], reason: str, timeout: float, *, json: bool) -> None:
    import getpass

    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import ReleaseShard

    if len(reason) > 1024:
        raise CliError("--reason: write at most 1024 characters; nothing was sent", Exit.USAGE)
    facts, fleet = known.version, TrainhouseClient.from_settings().fleet()
    for shard in shards:
        asked = ReleaseShard(dataset=facts.dataset, sha256=facts.sha256, shard=shard, user=getpass.getuser(), reason=reason)
        try:
            released = fleet.release_shard(asked, timeout)
        except ChangeRefusedError as refused:
            raise CliError(str(refused), Exit.REJECTED) from refused
        if json:
            output.json_lines([released.model_dump(mode="json")])
        else:
            sys.stdout.write(f"shard {shard} of {facts.name} is released\n")


def _row(known: "PublishedVersion", shard: "ShardQuarantined") -> dict[str, Any]:
    return {"version": str(known.version.name)} | shard.model_dump(mode="json", exclude={"admission_partitions"})


def _cells(known: "PublishedVersion", shard: "ShardQuarantined") -> tuple[Any, ...]:
    from trainhouse.cli.shared import output

    e = shard.evidence
    version = f"{known.version.dataset}@{known.tags[-1]}" if known.tags else f"{known.version.dataset}@sha256:{known.version.sha256}"
    about = (str(e.fault), e.sample, e.expected, e.seen, e.job_id or "", "" if e.rank is None else e.rank, e.node_id or "")
    return version, f"{shard.shard[:SHORT_CHARS]}…", shard.split or "", *about, output.clock(shard.quarantined_at_ms)
