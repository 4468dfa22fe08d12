"""`trainhouse models fetch`, `verify` and `card`: the files of a version, from the object store alone.

Holds: a folder that looks complete is complete; no broker, table or gateway is asked for the first two.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.models.model_options import Project, models_group
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.checkpointing.exchange.export import Format
    from trainhouse.checkpointing.models.model_card import EvaluationFacts
    from trainhouse.checkpointing.models.named_version import NamedVersion
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

_EVALUATIONS = """
SELECT suite, dataset, split, metric, value, low, high FROM model_evaluations
WHERE project = {project:String} AND model = {model:String} AND version = {version:UInt32} ORDER BY suite, dataset, split, metric
"""
Version = Annotated[
    str,
    typer.Argument(metavar="NAME@V", help="NAME@champion, NAME@staging, NAME@3 or NAME@1.2.0; or PROJECT/NAME@….", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the group of models, which is made where there is none."""
    group = models_group(app)
    group.command("fetch")(fetch)
    group.command("verify")(verify)
    group.command("card")(card)


def fetch(
    version: Version,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.", show_default=False)],
    kind: Annotated[str, typer.Option("--format", metavar="FORMAT", help="safetensors, hf, dcp or torch.")] = "safetensors",
    shard_gb: Annotated[float, typer.Option("--shard-gb", min=0.001, help="Most GB of one file, where the format has several.")] = 5.0,
    project: Project = DEFAULT_PROJECT,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Fetch a version of a model into a folder: weights, tokenizer, preprocessing, and where all of it is from.

    \b
    trainhouse models fetch digits@champion digits
    trainhouse models fetch vision/resnet@1.2.0 resnet --format torch

    Needs the object store alone. Every byte is compared with its hash; the folder appears whole or not at all, and a fetch that was cut
    off goes on where it was. safetensors holds the model's weights alone, dcp and torch the whole checkpoint. `trainhouse.json` beside
    them, and the metadata of safetensors files, name version, job, code, data, licence and hashes; `trainhouse models verify` checks them.
    """
    from trainhouse.checkpointing.models.fetch import fetch as fetch_version
    from trainhouse.cli.data.dataset_access import object_store
    from trainhouse.cli.shared import output

    chosen = _format(kind)
    with _explained():
        objects = object_store()
        found = _found(objects, version, project)
        done = fetch_version(objects, found, chosen, out.absolute(), int(shard_gb * 10**9))
    if json:
        files = [{"name": file.name, "size_bytes": file.size_bytes, "sha256": file.sha256 or None} for file in done.files]
        row = {"version": found.lineage_id, "semver": found.staged.semver, "content": found.staged.content, "out": done.where}
        output.json_lines([{**row, "was_there": done.was_there, "files": files, "left_out": list(done.left_out)}])
        return
    what = "is there already, each file sound" if done.was_there else f"{len(done.files)} files of {done.size_bytes / 2**20:.1f} MiB"
    print(f"{found.lineage_id} ({found.staged.semver}) is in {done.where}: {what}")


def verify(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A safetensors file, or a fetched folder.", show_default=False)],
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Name the version of a model that a file or a folder is, or say that it is none. Exits with 1 where it is none.

    \b
    trainhouse models verify digits
    trainhouse models verify digits/model.safetensors

    Needs the object store alone. What the file says of itself only chooses the version with which each byte is compared.
    """
    from trainhouse.checkpointing.models.verify import identify
    from trainhouse.cli.data.dataset_access import object_store
    from trainhouse.cli.shared import output

    if not path.exists():
        raise CliError(f"{path} is not there", Exit.NOT_FOUND)
    with _explained():
        verdict = identify(object_store(), path)
    found = verdict.version
    if json:
        row: dict[str, str | None] = {"version": None, "semver": None, "content": None}
        if found is not None:
            row = {"version": found.lineage_id, "semver": found.staged.semver, "content": found.staged.content}
        output.json_lines([{"path": str(path), **row, "problems": list(verdict.problems), "others": list(verdict.others)}])
    elif found is not None:
        print(f"{path} is {found.lineage_id} ({found.staged.semver}), content sha256:{found.staged.content}")
    else:
        print(f"{path} is no version of a model: {'; '.join(verdict.problems)}")
    if verdict.others:
        output.remark(f"not of the version, beside it: {', '.join(verdict.others[:8])}{' …' * (len(verdict.others) > 8)}")
    if found is None:
        raise typer.Exit(Exit.FAILED)


def card(
    version: Version,
    out: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it at run time
        typer.Option("--out", metavar="FILE", help="File to write, such as README.md; people's text in it stays. Default: print it."),
    ] = None,
    project: Project = DEFAULT_PROJECT,
    data_dir: DataDir = None,
) -> None:
    """Write a version's model card in Hugging Face's format, from facts; people's text is kept, and the unknown says so.

    \b
    trainhouse models card digits@champion
    trainhouse models card digits@3 --out digits/README.md
    """
    from trainhouse.checkpointing.models.fetch import checkpoint_of
    from trainhouse.checkpointing.models.model_card import card_of
    from trainhouse.checkpointing.models.version_content import read_content
    from trainhouse.cli.data.dataset_access import object_store
    from trainhouse.cli.shared import output

    with _explained():
        objects = object_store()
        found = _found(objects, version, project)
        content = read_content(objects, found.project, found.staged.content)
        manifest = checkpoint_of(objects, found.staged.content, content)
        written = out.read_text() if out is not None and out.is_file() else None
        text = card_of(found, content, manifest, _evaluations(found), written)
    if out is None:
        print("\n".join(map(output.printable_line, text.split("\n"))))
        return
    _replace(out, text)
    print(f"the card of {found.lineage_id} is in {out}{'; text of people is as it was' * (written is not None)}")


def _evaluations(version: "NamedVersion") -> "list[EvaluationFacts] | None":
    """Figures of a version's evaluations; None where the tables do not answer."""
    from trainhouse.checkpointing.models.model_card import EvaluationFacts
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.errors import ClientError

    of_version: dict[str, str | int] = {"project": version.project, "model": version.name, "version": version.staged.version}
    try:
        rows = TrainhouseClient.from_settings().sql.table(_EVALUATIONS, of_version).dicts()
    except ClientError:
        return None
    return [
        EvaluationFacts(
            str(row["suite"]),
            "/".join(part for part in (row["dataset"], row["split"]) if part),
            str(row["metric"]),
            row["value"],
            row["low"],
            row["high"],
        )
        for row in rows
    ]


def _replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(text)
    try:
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
    except OSError:
        Path(file.name).unlink(missing_ok=True)
        raise


def _found(objects: "S3ObjectStore", text: str, project: str) -> "NamedVersion":
    from trainhouse.checkpointing.models.named_version import find_version, parse_reference

    return find_version(objects, parse_reference(text, project))


def _format(text: str) -> "Format":
    from trainhouse.checkpointing.exchange.export import Format

    try:
        return Format(text)
    except ValueError as error:
        raise CliError(f"--format {text[:100]!r}: write one of {', '.join(Format)}", Exit.USAGE) from error


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of models as one sentence."""
    from trainhouse.checkpointing.errors import DamagedError, ExportError, InvalidStateError, NoModelError

    try:
        yield
    except NoModelError as error:
        raise CliError(str(error), Exit.NOT_FOUND) from error
    except InvalidStateError as error:
        raise CliError(str(error), Exit.USAGE) from error
    except (ExportError, DamagedError) as error:
        raise CliError(str(error), Exit.FAILED) from error
    except OSError as error:
        raise CliError(f"{error.filename or 'a file'}: {error.strerror or error}", Exit.USAGE) from error
