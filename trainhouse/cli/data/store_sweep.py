"""`store sweep`: gives back what nothing needs any more of the object store. `store own`: says whose an old job is.

Holds: what a checkpoint, a published version, an artifact or a run names or a reference keeps, and what is younger than the grace, is never
touched; two sweeps at once do no harm.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from trainhouse.cli.shared.options import DataDir, Json

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.object_store import ObjectStore


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Sweep the object store, and record the owners of old jobs.", no_args_is_help=True)
    group.command("sweep")(sweep)
    group.command("own")(own)
    app.add_typer(group, name="store")


def sweep(json: Json = False, data_dir: DataDir = None) -> None:
    """Remove bytes that no checkpoint names any more, what the ranks of broken gangs left, what jobs that ended wrote to their outputs,
    objects of datasets that no version has, and files of artifacts that nothing names; published versions stay. Nothing younger than a day
    goes.

    \b
    trainhouse store sweep  by hand, or once a day from a timer

    Checkpoints themselves go by their jobs' `checkpoint` or by `trainhouse checkpoint delete`; this frees the bytes a day afterwards, and
    puts back what a tag or another job referred to in that instant. It reads every manifest: minutes for many thousands. Interrupted,
    the next one goes on. Where the list of jobs or of published versions cannot be read whole, outputs and datasets stay. A local stack
    does it once a day (`sweep` in `trainhouse ps`).
    """
    from trainhouse.checkpointing.artifacts.artifact_sweep import sweep_artifacts
    from trainhouse.checkpointing.chain.retention import sweep as sweep_chunks
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.cli.shared import output
    from trainhouse.workers.own_states import sweep_left

    objects = S3ObjectStore(StoreSettings())
    found = sweep_chunks(objects)
    left = sweep_left(objects)
    data = _sweep_data(objects)
    artifacts = sweep_artifacts(objects)
    if json:
        counts = {
            "chunks": found.chunks,
            "bytes_freed": found.bytes_freed + data.bytes_freed + artifacts.bytes_freed,
            "left_by_ranks": left,
        }
        counts |= {"staged_outputs": data.staged, "of_no_version": data.of_no_version}
        counts |= {"artifacts": artifacts.objects}
        kept = {"data_kept": data.kept, "artifacts_kept": artifacts.unclear}
        output.json_lines([{**counts, "damaged": found.damaged, "unknown": found.unknown, **kept}])
        return
    print(f"{found.chunks} chunks of {found.bytes_freed / 2**20:.1f} MiB and {left} objects that ranks of broken gangs left are removed")
    if data.staged:
        print(f"{data.staged} objects that jobs which ended wrote to their outputs are removed; published versions stay")
    if data.of_no_version:
        print(f"{data.of_no_version} objects of {data.bytes_freed / 2**20:.1f} MiB that no version of a dataset has are removed")
    if artifacts.objects:
        print(f"{artifacts.objects} objects of {artifacts.bytes_freed / 2**20:.1f} MiB that no artifact or run names are removed")
    for reason in (*data.kept, *artifacts.unclear):
        output.remark(reason)
    for key in found.damaged:
        output.remark(
            f"the entry {key} is damaged: all bytes of its job stay for it; to free them, remove it from the store once the job ended"
        )
    for key in found.unknown:
        output.remark(f"the entry {key} is of a newer program: all bytes of its job stay for it; sweep with that program to free others")


@dataclass(frozen=True)
class _DataSweep:
    """Removed objects of outputs and datasets; `kept`: reasons for which some were not looked at."""

    staged: int = 0
    of_no_version: int = 0
    bytes_freed: int = 0
    kept: tuple[str, ...] = ()


def _sweep_data(objects: "ObjectStore") -> _DataSweep:
    from trainhouse.checkpointing.chain.chunks import GRACE_S
    from trainhouse.cli.shared.named_versions import NotWholeError, asked_versions, published_versions, running_jobs
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.errors import NotReachableError
    from trainhouse.workers.data.dataset_sweep import NamedVersions, sweep_datasets
    from trainhouse.workers.data.outputs.sealing import sweep_staged

    staged = 0
    try:
        kafka = TrainhouseClient.from_settings().kafka
        jobs = running_jobs(kafka, GRACE_S)
        staged = sweep_staged(objects, jobs.is_over)
        asked = asked_versions(kafka)
        named = NamedVersions(published_versions(kafka), asked, jobs.is_over)
    except (NotWholeError, NotReachableError) as error:
        return _DataSweep(staged, kept=(f"nothing below {objects.uri('datasets/')} is removed: {error}",))
    found = sweep_datasets(objects, named)
    return _DataSweep(staged, found.objects, found.bytes_freed, found.unclear)


def own(
    job: Annotated[str, typer.Argument(help="The job's id.")],
    project: Annotated[str, typer.Option("--project", help="Its project.")],
    data_dir: DataDir = None,
) -> None:
    """Record the owner of a job that ended before the store recorded owners, so that jobs of its project may resume from it.

    \b
    trainhouse store own gpt-17 --project lm

    Later jobs need no such record: their agents wrote it. An owner, once recorded, does not change.
    """
    from trainhouse.checkpointing.lease.lease_facts import say_owner
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.cli.shared.exit_codes import CliError, Exit
    from trainhouse.events.model.ids import JobId

    try:
        job_id = JobId.parse(job)
    except ValueError as error:
        raise CliError(str(error), Exit.USAGE) from error
    say_owner(S3ObjectStore(StoreSettings()), job_id, project)
    print(f"job {job} is of project {project}")
