"""`projections hash`, `rebuild` and `swap`: are the tables what the topics say, and build them anew.

Holds: a rebuild goes into a folder of its own while the old tables serve; what serves is replaced only when asked, and never removed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json, KafkaDir

if TYPE_CHECKING:
    from trainhouse.projections.settings import ProjectorSettings
    from trainhouse.projections.store.table_hashes import TableHash

Into = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads it at run time
    typer.Option("--into", help="Folder of the new tables; default: beside the projector's, with .rebuilt behind its name."),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Compare the SQL tables by hashes, or build them anew from the topics.", no_args_is_help=True)
    group.command("hash")(hash_tables)
    group.command("rebuild")(rebuild)
    group.command("swap")(swap)
    app.add_typer(group, name="projections")


def hash_tables(json: Json = False, data_dir: DataDir = None) -> None:
    """Print a hash of the content of each table. Equal tables have equal hashes, however their rows came in.

    \b
    trainhouse projections hash
    trainhouse projections hash --json > before.json
    """
    from trainhouse.projections.settings import ClickHouseSettings
    from trainhouse.projections.store.clickhouse import connect_server
    from trainhouse.projections.store.table_hashes import table_hashes

    with _sentences():
        clickhouse = connect_server(ClickHouseSettings())
        try:
            _show(table_hashes(clickhouse), json)
        finally:
            clickhouse.close()


def rebuild(into: Into = None, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Build all tables anew from the topics, beside those that serve, and print their hashes.

    \b
    trainhouse projections rebuild                    while the stack runs
    trainhouse down && trainhouse projections swap && trainhouse up

    Interrupted, the next rebuild goes on. On a ClickHouse server nothing of this is needed: point a projector at an empty database
    (TRAINHOUSE_CLICKHOUSE_DATABASE), and it fills it while the old one serves.
    """
    from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
    from trainhouse.cli.shared import output
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.projections.rebuild import rebuild as build
    from trainhouse.projections.shutdown import on_signal

    output.logs_aside()
    settings, folder = _folders(into)
    with _sentences():
        made = build(KafkaSettings(), settings, folder, on_signal(), ObjectArchive())
    _show(made.hashes, json)
    rate = made.records / made.elapsed_s if made.elapsed_s else 0.0
    output.remark(f"{made.records} events in {made.elapsed_s:.1f} s ({rate:.0f}/s), in {folder}")


def swap(into: Into = None, data_dir: DataDir = None) -> None:
    """Put rebuilt tables in the place of the projector's, which must be stopped; the old ones stay beside them.

    \b
    trainhouse down && trainhouse projections swap && trainhouse up
    """
    from trainhouse.cli.shared import output
    from trainhouse.projections.rebuild import swap as put_in_place

    settings, folder = _folders(into)
    with _sentences():
        old = put_in_place(settings, folder)
    output.remark(f"in place; what was there is in {old}" if old else "in place")


def _folders(into: Path | None) -> "tuple[ProjectorSettings, Path]":
    from trainhouse.projections.settings import ProjectorSettings

    settings = ProjectorSettings()
    if settings.server:
        raise CliError("this projector writes to a ClickHouse server: point it at an empty database, and it fills it", Exit.USAGE)
    folder = into or settings.data_dir.with_name(f"{settings.data_dir.name}.rebuilt")
    if folder.absolute() == settings.data_dir.absolute():
        raise CliError(f"{folder} is where the projector's tables are; name another folder by --into", Exit.USAGE)
    return settings, folder


@contextmanager
def _sentences() -> Iterator[None]:
    from trainhouse.projections.errors import ProjectionError

    try:
        yield
    except ProjectionError as error:
        raise CliError(str(error), Exit.UNAVAILABLE) from error


def _show(hashes: "list[TableHash]", json: bool) -> None:
    from trainhouse.cli.shared import output

    if json:
        output.json_lines({"table": h.table, "rows": h.rows, "hash": h.digest} for h in hashes)
        return
    output.table(("table", "rows", "hash"), [(h.table, h.rows, h.digest) for h in hashes], right=("rows",))
