"""`expire`: jobs that finished long ago leave the compacted topics, once the tables hold them.

Holds: once means one pass; with `--follow` it does so again and again, and what passes by itself (brokers or tables away) it waits out.
Killed at any instant, paused or run twice at once, nothing newer is deleted and the next run goes on.
Never: deletes what the tables do not hold.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.tombstones.settings import RetentionSettings

COLUMNS = ("topic", "ended", "tombstones", "left")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("expire")(expire)


def expire(
    follow: Annotated[bool, typer.Option("--follow", help="Go on until SIGTERM, as a service.")] = False,
    every_s: Annotated[
        float, typer.Option("--every", min=1, help="With --follow: seconds between two passes, a tenth more or less.")
    ] = 3600,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what a pass would delete.")] = False,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Write tombstones for what ended `retention.status_days` ago (90 by default): the status of a finished job, its explanation,
    reservation and trace, and the answer to a refused request. SQL keeps all of it, and `trainhouse status JOB` answers from there.

    \b
    trainhouse expire --dry-run                  what would go
    trainhouse expire --json                     one pass
    trainhouse expire --follow --every 3600
        as a service; any number of them may run
    """
    from trainhouse.cli.shared import output
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.tombstones.settings import RetentionSettings
    from trainhouse.projections.errors import ProjectionError

    output.logs_aside()
    kafka, retention = KafkaSettings(), RetentionSettings()
    if follow and not dry_run:
        _follow(kafka, retention, every_s, json=json)
        return
    try:
        _show(_pass(kafka, retention, dry_run=dry_run), json)
    except ProjectionError as error:
        raise CliError(f"nothing was deleted: what the tables hold is not known: {error}", Exit.UNAVAILABLE) from error


def _follow(kafka: "KafkaSettings", retention: "RetentionSettings", every_s: float, *, json: bool) -> None:
    from trainhouse.cli.shared.repeat import again_and_again
    from trainhouse.events.model.errors import BusUnavailableError
    from trainhouse.events.tombstones.compacted_topics import SupersededPassError
    from trainhouse.projections.errors import ClickHouseRequestError

    def work() -> None:
        _show([row for row in _pass(kafka, retention) if row["ended"]], json)

    passing = (BusUnavailableError, ClickHouseRequestError, SupersededPassError)
    again_and_again("expire", every_s, work, passing, "When a pass ended last, in seconds since 1970")


def _pass(kafka: "KafkaSettings", retention: "RetentionSettings", *, dry_run: bool = False) -> list[dict[str, Any]]:
    """One pass; a row a topic. Blocks on the brokers and ClickHouse."""
    import time
    from contextlib import closing

    from trainhouse.events.tombstones.compacted_topics import KafkaTopics
    from trainhouse.events.tombstones.one_pass import Buried, bury, look
    from trainhouse.projections.ingest.retained_from import held_to
    from trainhouse.projections.settings import ClickHouseSettings
    from trainhouse.projections.store.clickhouse import connect_server

    with closing(connect_server(ClickHouseSettings())) as clickhouse:
        held = held_to(clickhouse)
    with closing(KafkaTopics(kafka)) as topics:
        looked = look(topics, round(time.time() * 1000), retention.status_ms, held)
        done = [Buried(due.topic, len(due.keys), 0, 0) for due in looked.due] if dry_run else bury(topics, looked)
    rows: dict[str, dict[str, Any]] = {}
    for one in done:
        row = rows.setdefault(one.topic, {"topic": one.topic, "ended": 0, "tombstones": 0, "left": 0})
        row["ended"], row["tombstones"], row["left"] = row["ended"] + one.ended, row["tombstones"] + one.written, row["left"] + one.left
    return list(rows.values())


def _show(rows: list[dict[str, Any]], json: bool) -> None:
    import sys

    from trainhouse.cli.shared import output

    if json:
        output.json_lines(rows)
    elif rows:
        output.table(COLUMNS, [tuple(row.values()) for row in rows], right=COLUMNS[1:])
    sys.stdout.flush()
