"""`trainhouse data export`: a published version as files that other tools read."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trainhouse.cli.data.dataset_access import VersionArgument, explained, object_store, opened_version
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir


class ExportFormat(StrEnum):
    """Format of the files."""

    WDS = "wds"
    PARQUET = "parquet"
    MDS = "mds"


def export(
    version: VersionArgument,
    out: Annotated[Path, typer.Option(help="Folder for the files; made where it is not there.", show_default=False)],
    format: Annotated[
        ExportFormat,
        typer.Option(help="wds: tars of WebDataset; parquet; mds of MosaicML Streaming."),
    ] = ExportFormat.WDS,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Write a version into a folder, as tars, Parquet or MDS: OUT/SPLIT/SPLIT-000000.tar and so on; hashes are compared.

    \b
    trainhouse data export speech@1.0.0 --out speech/
    trainhouse data export chats@1.0.0 --format parquet --out chats/
    trainhouse data export chats@1.0.0 --format mds --out chats/
    """
    from trainhouse.cli.shared import output
    from trainhouse.workers.data.exporting import export_mds, export_parquet, export_wds

    known, manifest = opened_version(version)
    write = {ExportFormat.WDS: export_wds, ExportFormat.PARQUET: export_parquet, ExportFormat.MDS: export_mds}[format]
    with explained():
        try:
            files = write(object_store(), known.version.project, manifest, out, _progress)
        except OSError as error:
            raise CliError(f"{out}: it cannot be written: {error.strerror or error}; give another folder by --out", Exit.FAILED) from error
    if json:
        output.json_lines([{"version": str(known.version.name), "files": [str(file) for file in files]}])
        return
    size = sum(file.stat().st_size for file in files)
    sys.stdout.write(f"{known.version.name}: {manifest.row_count} samples, {len(files)} files, {size / 2**20:.1f} MiB in {out}\n")


def _progress(done: int, total: int) -> None:
    """Reports on a terminal, on one line."""
    if sys.stderr.isatty():
        print(f"{done} of {total} shards", end="\r", file=sys.stderr)
