"""`trainhouse checkpoint export` and `import`: one checkpoint into files of other programs, and one from them.

Holds: a folder that looks complete is complete. Never: changes a checkpoint; runs code of what it imports.
"""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir
from trainhouse.cli.shared.stored_place import S3_SCHEME, stored_place
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.checkpointing.chain.manifest import Manifest
    from trainhouse.checkpointing.exchange.export import Exported, Format
    from trainhouse.checkpointing.exchange.importing import ImportSettings
    from trainhouse.checkpointing.stores.object_store import ObjectStore
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.events.model.resume_ref import ResumeFrom

RESTORED = ("optimizer", "schedule", "scaler", "ema")
"""Parts of a job's state, beside the model, that begin anew where a checkpoint lacks them."""
OWN_PREFIXES = ("jobs/", "chunks/")
"""Parts of the stack's bucket that sweeps clean."""
Which = Annotated[
    str,
    typer.Argument(
        metavar="JOB[@WHICH]", help="JOB, JOB@COMMIT, JOB@step:N or JOB@best.", show_default=False, autocompletion=complete.jobs
    ),
]


def export(
    checkpoint: Which,
    kind: Annotated[str, typer.Option("--format", metavar="FORMAT", help="safetensors, hf, dcp or torch.", show_default=False)],
    out: Annotated[str, typer.Option("--out", metavar="DIR|s3://BUCKET/PREFIX", help="A new place, or an empty one.", show_default=False)],
    shard_gb: Annotated[float, typer.Option("--shard-gb", min=0.001, help="Most GB of one file, where the format has several.")] = 5.0,
    spool: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it at run time
        typer.Option("--spool", help="With s3://: folder that holds one file at a time; default: the system's for temporary files."),
    ] = None,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Export a checkpoint into files that other programs read. Needs about 128 MiB of memory, however large it is.

    \b
    trainhouse checkpoint export gpt-1k7x3m9qp2f8d@41 --format hf --out gpt-41
    trainhouse checkpoint export gpt-1k7x3m9qp2f8d@best --format dcp \\
        --out s3://models/gpt

    \b
    safetensors   all tensors by name; other values are left out
    hf            the model's weights as Hugging Face names them, and config.json
                  if a `config` is tracked
    dcp           everything; `torch.distributed.checkpoint.load(state,
                  checkpoint_id=DIR)` reads it
    torch         everything in one file; `torch.load("DIR/checkpoint.pt",
                  weights_only=True)` reads it

    Every byte is compared with its hash. `trainhouse.json` beside it says which checkpoint it is, with the hashes of all files and what
    the format leaves out; it is written last. With dcp and torch, `ranks/` has each rank's own state (random generators, loaders).
    """
    from trainhouse.cli.jobs.checkpoint_commands import with_store
    from trainhouse.cli.shared import output

    chosen, which = _format(kind), _which(checkpoint)
    if spool is not None and not spool.is_dir():
        raise CliError(f"--spool {spool} is no folder", Exit.NOT_FOUND)
    target = stored_place(out) if out.startswith(S3_SCHEME) else Path(out).absolute()
    name, done = with_store(lambda objects: exported(objects, which, chosen, target, int(shard_gb * 10**9), spool))
    if json:
        files = [{"name": file.name, "size_bytes": file.size_bytes, "sha256": file.sha256} for file in done.files]
        output.json_lines(
            [{"checkpoint": name, "format": chosen.value, "out": done.where, "files": files, "left_out": list(done.left_out)}]
        )
        return
    print(f"{name} is exported to {done.where}: {len(done.files)} files of {done.size_bytes / 2**20:.1f} MiB")
    if done.left_out:
        few = ", ".join(done.left_out[:8])
        output.remark(f"left out: {few}" + (f" and {len(done.left_out) - 8} more, see trainhouse.json" if len(done.left_out) > 8 else ""))


def import_(
    source: Annotated[
        str, typer.Argument(metavar="DIR|s3://BUCKET/PREFIX", help="Folder of a DCP or Hugging Face checkpoint.", show_default=False)
    ],
    job: Annotated[str, typer.Option("--job", metavar="ID", help="Id for it, which no job ever had.", show_default=False)],
    project: Annotated[str, typer.Option("--project", help="Project whose jobs may start from it.")] = DEFAULT_PROJECT,
    only: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--only", metavar="PART", help="Take this part alone (model, optimizer …); repeatable."),
    ] = None,
    step: Annotated[Optional[int], typer.Option("--step", min=0, help="Its step; default: that of an export of Trainhouse, or 0.")] = None,  # noqa: UP045
    spool: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--spool", help="With s3://: folder that holds a copy of it; default: the system's for temporary files."),
    ] = None,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Import a checkpoint of `torch.distributed.checkpoint` or Hugging Face, so that jobs can start from it.

    \b
    trainhouse checkpoint import llama-3-8b --job llama-3-8b
    trainhouse submit --from llama-3-8b@1 -- python finetune.py
    trainhouse checkpoint import s3://models/gpt --job gpt-old --only model \\
        --step 1000

    It becomes the first checkpoint of an id that belongs to no job, and stays until `trainhouse checkpoint delete`; its name is printed
    (@1, or a later one where an import was killed right before its commit). A job that starts from it takes the parts that it has;
    others (an optimizer, a loader) begin anew. A part `optim`, as PyTorch's recipes name it, is the optimizer, and one dictionary around
    all parts is left out; a folder with neither a model nor an optimizer is taken for the model as a whole.

    Nothing outside of the folder is read, whatever a link in it says. Beside the `trainhouse.json` of an export every file is compared with
    its hash. Files of safetensors are read in pieces; a DCP folder takes memory for twice its largest tensor. Kafka must answer, since it
    knows the ids of jobs and the projects.
    """
    from trainhouse.checkpointing.exchange.importing import ImportSettings
    from trainhouse.cli.jobs.checkpoint_commands import require_job, with_store
    from trainhouse.cli.shared import output

    require_job(job)
    if spool is not None and not spool.is_dir():
        raise CliError(f"--spool {spool} is no folder", Exit.NOT_FOUND)
    place = stored_place(source) if source.startswith(S3_SCHEME) else Path(source).absolute()
    if isinstance(place, Path) and not place.is_dir():
        raise CliError(f"{source} is no folder", Exit.NOT_FOUND)
    _refuse_known(job, project)
    settings = ImportSettings(job, project, source if source.startswith(S3_SCHEME) else str(place), frozenset(only or ()), step)
    manifest, parts = with_store(lambda objects: imported(objects, place, settings, spool))
    name = f"{manifest.job_id}@{manifest.commit}"
    if json:
        row = {"checkpoint": name, "step": manifest.step, "tensors": len(manifest.tensors), "bytes_total": manifest.bytes_total}
        output.json_lines([{**row, "parts": parts}])
        return
    print(f"{name} is imported: {len(manifest.tensors)} tensors of {manifest.bytes_total / 2**20:.1f} MiB, step {manifest.step}")
    anew = [part for part in RESTORED if part not in parts]
    output.remark(f"parts: {', '.join(parts)}; a job that starts from it begins anew with: {', '.join(anew) or 'none'}")
    output.remark(f"begin from it: trainhouse submit --from {name} …")


def imported(
    objects: "ObjectStore", place: "Path | tuple[S3ObjectStore, str]", settings: "ImportSettings", spool: Path | None = None
) -> "tuple[Manifest, list[str]]":
    """Imports a folder, or a prefix of a store by way of one; returns the names of its parts too. Blocks. Raises CheckpointError."""
    from trainhouse.checkpointing.chain.chunks import ChunkStore
    from trainhouse.checkpointing.errors import NoCheckpointError
    from trainhouse.checkpointing.exchange.contents import Contents
    from trainhouse.checkpointing.exchange.download import download
    from trainhouse.checkpointing.exchange.importing import import_folder

    if isinstance(place, Path):
        manifest = import_folder(place, objects, settings)
    else:
        with tempfile.TemporaryDirectory(prefix="import-", dir=spool) as folder:
            if not download(*place, Path(folder)):
                raise NoCheckpointError(f"{settings.source}: no objects are there")
            manifest = import_folder(Path(folder), objects, settings)
    return manifest, Contents(manifest, ChunkStore(objects, manifest.job_id)).parts


def _refuse_known(job: str, project: str) -> None:
    """Raises CliError for an id that a job has, queued ones too, and for a project that is known not to be; NotReachableError without
    Kafka."""
    from trainhouse.client import TrainhouseClient, UnknownJobError
    from trainhouse.client.errors import NeedsKafkaError

    client = TrainhouseClient.from_settings()
    try:
        state = client.status(job).state.value
    except UnknownJobError:
        pass
    else:
        raise CliError(f"there is a job {job}, which is {state}: import under another id, and submit with --from", Exit.REJECTED)
    try:
        projects = client.fleet().projects()
    except NeedsKafkaError:
        return  # the gateway does not tell
    others = projects.get("*")
    if project not in projects and others is not None and others.project.closed:
        raise CliError(f"there is no project {project!r}, and others are closed; `trainhouse project list` lists them", Exit.NOT_FOUND)


def exported(
    objects: "ObjectStore",
    which: "ResumeFrom",
    kind: "Format",
    target: "Path | tuple[S3ObjectStore, str]",
    shard_bytes: int,
    spool: Path | None = None,
) -> "tuple[str, Exported]":
    """Exports what `which` names to a folder or a prefix of a store; returns its name too. Blocks. Raises CheckpointError."""
    from trainhouse.checkpointing.chain.chunks import ChunkStore
    from trainhouse.checkpointing.chain.restore_candidates import checkpoint_named
    from trainhouse.checkpointing.errors import ExportError, NoCheckpointError
    from trainhouse.checkpointing.exchange.contents import Contents
    from trainhouse.checkpointing.exchange.export import export_to_folder, export_to_store, plan_of

    if not isinstance(target, Path) and target[1].startswith(OWN_PREFIXES) and target[0].uri("") == objects.uri(""):
        raise ExportError(
            f"{target[0].uri(target[1])} is where the stack keeps its own checkpoints, and sweeps the rest; name another prefix"
        )
    try:
        manifest = checkpoint_named(objects, which)
    except NoCheckpointError as error:
        raise NoCheckpointError(f"{which}: no such readable checkpoint; `trainhouse checkpoints {which.job_id}` lists them") from error
    chunks = ChunkStore(objects, manifest.job_id)
    plan = plan_of(Contents(manifest, chunks), kind, shard_bytes)
    name = f"{manifest.job_id}@{manifest.commit}"
    if isinstance(target, Path):
        return name, export_to_folder(manifest, chunks, plan, kind, target)
    with tempfile.TemporaryDirectory(prefix="export-", dir=spool) as folder:
        return name, export_to_store(manifest, chunks, plan, kind, *target, Path(folder))


def _format(text: str) -> "Format":
    from trainhouse.checkpointing.exchange.export import Format

    try:
        return Format(text)
    except ValueError as error:
        raise CliError(f"--format {text[:100]!r}: write one of {', '.join(Format)}", Exit.USAGE) from error


def _which(text: str) -> "ResumeFrom":
    from trainhouse.events.model.resume_ref import GRAMMAR, parse_resume_from

    try:
        return parse_resume_from(text)
    except ValueError as error:
        raise CliError(f"{text[:300]!r} names no checkpoint: {GRAMMAR}", Exit.USAGE) from error
