"""`store sweep`: gives back what nothing needs any more of the object store. `store own`: says whose an old job is.

Holds: what a checkpoint names or a reference keeps, and what is younger than the grace, is never touched; two sweeps at once do no harm.
"""

from typing import Annotated

import typer

from trainhouse.cli.shared.options import DataDir, Json


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Sweep the object store, and record the owners of old jobs.", no_args_is_help=True)
    group.command("sweep")(sweep)
    group.command("own")(own)
    app.add_typer(group, name="store")


def sweep(json: Json = False, data_dir: DataDir = None) -> None:
    """Remove bytes that no checkpoint names any more, what the ranks of broken gangs left, and what jobs that ended wrote to their outputs;
    published versions stay. Nothing younger than a day goes.

    \b
    trainhouse store sweep                           by hand, or once a day from a timer

    Checkpoints themselves go by their jobs' `checkpoint` or by `trainhouse checkpoint delete`; this frees the bytes a day afterwards, and
    puts back what a tag or another job referred to in that instant. It reads every manifest: minutes for many thousands. Interrupted,
    the next one goes on. A local stack does it once a day (`sweep` in `trainhouse ps`).
    """
    from trainhouse.checkpointing.chain.retention import sweep as sweep_chunks
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.cli.shared import output
    from trainhouse.workers.data.outputs.sealing import sweep_staged
    from trainhouse.workers.own_states import sweep_left

    objects = S3ObjectStore(StoreSettings())
    found = sweep_chunks(objects)
    left = sweep_left(objects)
    staged = sweep_staged(objects, _is_over)
    if json:
        counts = {"chunks": found.chunks, "bytes_freed": found.bytes_freed, "left_by_ranks": left, "staged_outputs": staged}
        output.json_lines([{**counts, "damaged": found.damaged, "unknown": found.unknown}])
        return
    print(f"{found.chunks} chunks of {found.bytes_freed / 2**20:.1f} MiB and {left} objects that ranks of broken gangs left are removed")
    if staged:
        print(f"{staged} objects that jobs which ended wrote to their outputs are removed; published versions stay")
    for key in found.damaged:
        output.remark(
            f"the entry {key} is damaged: all bytes of its job stay for it; to free them, remove it from the store once the job ended"
        )
    for key in found.unknown:
        output.remark(f"the entry {key} is of a newer program: all bytes of its job stay for it; sweep with that program to free others")


def _is_over(job_id: str) -> bool:
    """Whether a job has ended, or ended so long ago that nothing knows it any more."""
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.errors import UnknownJobError

    try:
        return TrainhouseClient.from_settings().status(job_id).state.final
    except UnknownJobError:
        return True


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
