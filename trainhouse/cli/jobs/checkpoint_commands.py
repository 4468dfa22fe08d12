"""`trainhouse checkpoint`: tags, verification, deletion, export and import of single checkpoints in the object store.

Holds: what a tag or another job refers to is not deleted, and the refusal says by what and what to do.
"""

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import JobArgument, Json, KafkaDir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainhouse.checkpointing.chain.manifest import Manifest, Pruned
    from trainhouse.checkpointing.stores.object_store import ObjectStore
    from trainhouse.client.quick.quick_reads import QuickReads
    from trainhouse.events.model.resume_ref import ResumeFrom

T = TypeVar("T")
MOST_BY_GATEWAY = 1000
"""Of so many, the gateway may have left out some."""
One = Annotated[
    str, typer.Argument(metavar="JOB@N", help="Job id and number of its checkpoint.", show_default=False, autocompletion=complete.jobs)
]
OneOrAll = Annotated[
    str, typer.Argument(metavar="JOB[@N]", help="One checkpoint, or all of a job.", show_default=False, autocompletion=complete.jobs)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the tag.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    from trainhouse.cli.jobs import checkpoint_exchange

    group = typer.Typer(no_args_is_help=True, help="Tag single checkpoints, verify, delete, export and import them.")
    group.command("tag")(tag)
    group.command("untag")(untag)
    group.command("tags")(tags)
    group.command("verify")(verify)
    group.command("delete")(delete)
    group.command("export")(checkpoint_exchange.export)
    group.command("import")(checkpoint_exchange.import_)
    app.add_typer(group, name="checkpoint")


def tag(checkpoint: One, name: Name, data_dir: KafkaDir = None) -> None:
    """Keep a checkpoint for as long as the tag exists, whatever its job's retention says. A tag of that name moves.

    \b
    trainhouse checkpoint tag gpt-1k7x3m9qp2f8d@41 paper
    """
    from trainhouse.checkpointing.chain import references

    job_id, commit = _one(checkpoint)
    with_store(lambda objects: references.tag(objects, job_id, name, commit))
    print(f"{job_id}@{commit} is kept until `trainhouse checkpoint untag {job_id} {name}`")


def untag(job: JobArgument, name: Name, data_dir: KafkaDir = None) -> None:
    """Remove a tag. A name `used-by:JOB` ends what that other job, which began from the checkpoint, keeps of it.

    \b
    trainhouse checkpoint untag gpt-1k7x3m9qp2f8d paper

    Retention of a running job then decides on the checkpoint again; of a job that ended it stays until it is deleted.
    """
    from trainhouse.checkpointing.chain import references

    require_job(job)
    commit = with_store(lambda objects: references.untag(objects, job, name))
    if commit is None:
        raise CliError(f"{job} has no tag {name!r}; `trainhouse checkpoint tags {job}` lists them", Exit.NOT_FOUND)
    print(f"{job}@{commit} is no longer kept by {name}")


def tags(job: JobArgument, json: Json = False, data_dir: KafkaDir = None) -> None:
    """List what keeps checkpoints of a job beyond its retention: tags, and jobs that began from one (`used-by:JOB`).

    \b
    trainhouse checkpoint tags gpt-1k7x3m9qp2f8d
    """
    from trainhouse.cli.shared import output

    rows, unreadable = _tags(job)
    if json:
        output.json_lines(rows)
    else:
        output.table(
            ("commit", "name"), [("all" if row["commit"] is None else row["commit"], row["name"]) for row in rows], right=("commit",)
        )
    for name in unreadable:
        output.remark(f"{name} cannot be read: it keeps all checkpoints of {job} until `trainhouse checkpoint untag {job} {name}`")


def _tags(job: str) -> "tuple[Sequence[Mapping[str, Any]], Sequence[str]]":
    """Names that keep checkpoints of a job, by commit, and those of them that cannot be read: by the gateway, since a client of the object
    store is slow to load; else, also of an id without a job, from the store itself. Blocks. Raises CliError."""
    from trainhouse.client.quick.quick_reads import TableReads, quickly

    def by_gateway(reads: "QuickReads") -> list[dict[str, Any]] | None:
        return reads.checkpoint_tags(job) if isinstance(reads, TableReads) else None

    rows = quickly(by_gateway)
    if rows and len(rows) < MOST_BY_GATEWAY:
        rows.sort(key=lambda row: (-1 if row["commit"] is None else row["commit"], row["name"]))
        return rows, [str(row["name"]) for row in rows if row["commit"] is None]
    from trainhouse.checkpointing.chain.references import references

    require_job(job)
    found = with_store(lambda objects: references(objects, job))
    return found.rows, found.unreadable


def verify(checkpoint: OneOrAll, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Read every byte of one checkpoint, or of all of a job, and compare it with its hash. Exits with 1 if anything is damaged.

    \b
    trainhouse checkpoint verify gpt-1k7x3m9qp2f8d@41
    trainhouse checkpoint verify gpt-1k7x3m9qp2f8d --json
    """
    from trainhouse.cli.shared import output

    which = _parsed(checkpoint)
    rows = with_store(lambda objects: verified(objects, which))
    if not rows:
        what = f"{which}: no such checkpoint" if which.commit is not None else f"{which.job_id} has no checkpoints in the store"
        raise CliError(f"{what}; `trainhouse checkpoints {which.job_id}` lists what it saved", Exit.NOT_FOUND)
    if json:
        output.json_lines(rows)
    else:
        for row in rows:
            size = f"{row['bytes_total'] / 2**20:.1f} MiB in {row['chunks']} chunks"
            print(f"{row['job_id']}@{row['commit']}  step {row['step']}  {size}  " + ("damaged" if row["damaged"] else "sound"))
            for problem in row["damaged"]:
                print(f"  {problem}")
    if any(row["damaged"] for row in rows):
        output.remark("a restart passes over damaged checkpoints: it begins from the newest sound one")
        raise typer.Exit(Exit.FAILED)


def delete(checkpoint: One, data_dir: KafkaDir = None) -> None:
    """Delete a checkpoint, and record by whom. Refused while a tag or another job keeps it, and for the newest two of a job that runs.

    \b
    trainhouse checkpoint delete gpt-1k7x3m9qp2f8d@41

    Its bytes go with a sweep of the store, a day later at the earliest. Cut off, or with the brokers away, the same command again finishes
    it: `trainhouse checkpoints JOB` then shows it as DELETED.
    """
    import getpass

    from trainhouse.checkpointing.chain import retention
    from trainhouse.checkpointing.chain.manifest import Deletion
    from trainhouse.client import NotReachableError, TrainhouseClient, UnknownJobError
    from trainhouse.events.runtime.clock import wall_ms

    job_id, commit = _one(checkpoint)
    try:
        ended = TrainhouseClient.from_settings().status(job_id).state.final
    except UnknownJobError:
        ended = True  # long ago: its status has left the topics
    by = Deletion(user=getpass.getuser(), at_ms=wall_ms())
    entry = with_store(lambda objects: retention.delete(objects, job_id, commit, ended, by))
    try:
        _record_deletion(entry)
    except NotReachableError as error:
        raise CliError(
            f"{job_id}@{commit} is deleted, but lists still show it, as the brokers do not take it: {error}; run the command again",
            Exit.UNAVAILABLE,
        ) from error
    print(f"{job_id}@{commit} of step {entry.step} is deleted; sweeps of the store free its bytes a day from now")


def _record_deletion(entry: "Pruned") -> None:
    """Sends the event of a deletion, the same one each time. Raises NotReachableError."""
    from trainhouse.client.kafka.operator_events import send_event
    from trainhouse.events import CheckpointDeleted
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.wire.topics import TRACKING

    assert entry.deletion is not None
    event = CheckpointDeleted(
        job_id=entry.job_id,
        attempt=entry.attempt,
        epoch=entry.epoch,
        at_ms=entry.deletion.at_ms,
        commit=entry.commit,
        step=entry.step,
        user=entry.deletion.user,
    )
    send_event(
        KafkaSettings(),
        TRACKING,
        event,
        event_id=f"{entry.job_id}:deleted:{entry.commit}",
        source="trainhouse/client",
        key=event.subject().encode(),
        at_ms=event.at_ms,
    )


def verified(objects: "ObjectStore", which: "ResumeFrom") -> list[dict[str, Any]]:
    """A row for each checkpoint in the store that `which` names, oldest first, with what is damaged. Reads all bytes; blocks long."""
    from trainhouse.checkpointing.chain.chunks import ChunkStore, prefix_of
    from trainhouse.checkpointing.chain.commits import entries_newest_first
    from trainhouse.checkpointing.chain.manifest import Manifest
    from trainhouse.checkpointing.errors import DamagedError

    job_id = str(which.job_id)
    chunks = ChunkStore(objects, job_id)
    problems: dict[str, str | None] = {}  # by hash: checkpoints share chunks, and each is read once

    def damage(manifest: Manifest) -> list[str]:
        distinct = {c.sha256: c for c in manifest.chunks}
        unread = [c for sha256, c in distinct.items() if sha256 not in problems]
        problems.update(dict.fromkeys(c.sha256 for c in unread))
        problems.update({e.sha256: str(e) for e in chunks.verify(unread, prefix_of(manifest)) if e.sha256 is not None})
        return [found for found in (problems[sha256] for sha256 in distinct) if found is not None]

    rows = []
    for commit, entry in entries_newest_first(objects, job_id):
        if which.commit not in (None, commit):
            continue
        if isinstance(entry, DamagedError):
            rows.append(_row(job_id, commit, None, [str(entry)]))
        elif isinstance(entry, Manifest):
            rows.append(_row(job_id, commit, entry, damage(entry)))
    return rows[::-1]


def _row(job_id: str, commit: int, manifest: "Manifest | None", damaged: list[str]) -> dict[str, Any]:
    known = {"step": None, "bytes_total": 0, "chunks": 0}
    if manifest is not None:
        known = {"step": manifest.step, "bytes_total": manifest.bytes_total, "chunks": len({c.sha256 for c in manifest.chunks})}
    return {"job_id": job_id, "commit": commit, **known, "damaged": damaged}


def with_store(work: "Callable[[ObjectStore], T]") -> "T":
    """Does `work` on the object store. Raises CliError for a checkpoint that is not there, or must stay."""
    from trainhouse.checkpointing.errors import DamagedError, ExportError, HeldError, InvalidStateError, NoCheckpointError
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

    try:
        return work(S3ObjectStore(StoreSettings()))
    except NoCheckpointError as error:
        raise CliError(str(error), Exit.NOT_FOUND) from error
    except DamagedError as error:
        raise CliError(
            f"{error}; `trainhouse checkpoint verify` names what else is damaged, an older one may be sound", Exit.FAILED
        ) from error
    except ExportError as error:
        raise CliError(str(error), Exit.FAILED) from error
    except HeldError as error:
        raise CliError(str(error), Exit.REJECTED) from error
    except InvalidStateError as error:
        raise CliError(str(error), Exit.USAGE) from error


def _one(text: str) -> tuple[str, int]:
    which = _parsed(text)
    if which.commit is None:
        raise CliError(f"{text!r} names no checkpoint: write JOB@N; `trainhouse checkpoints {which.job_id}` lists them", Exit.USAGE)
    return str(which.job_id), which.commit


def _parsed(text: str) -> "ResumeFrom":
    from trainhouse.events.model.resume_ref import parse_resume_from

    try:
        which = parse_resume_from(text)
    except ValueError as error:
        raise CliError(f"{text[:300]!r} names no checkpoint: write JOB@N with the number of one", Exit.USAGE) from error
    if which.best or which.step is not None:
        raise CliError(
            f"{text!r}: write JOB@N with the number of the checkpoint; `trainhouse checkpoints {which.job_id}` lists them", Exit.USAGE
        )
    return which


def require_job(text: str) -> None:
    """Raises CliError for what is no job id."""
    from trainhouse.events.model.ids import JobId

    try:
        JobId.parse(text)
    except ValueError as error:
        raise CliError(str(error), Exit.USAGE) from error
