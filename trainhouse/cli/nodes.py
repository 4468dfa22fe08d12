"""`nodes`: the machines of the fleet."""

from typing import Annotated, Optional

import typer

from trainhouse.cli.exits import CliError, Exit
from trainhouse.cli.options import FILTERS, DataDir, Json, Limit, Pool, Since, Until

STATES = ("ALIVE", "SUSPECTED", "LOST")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("nodes")(nodes)


def nodes(
    pool: Pool = None,
    state: Annotated[Optional[list[str]], typer.Option("--state", help="ALIVE, SUSPECTED or LOST.", rich_help_panel=FILTERS)] = None,  # noqa: UP045
    user: Annotated[Optional[str], typer.Option("--user", help="With jobs of this user.", rich_help_panel=FILTERS)] = None,  # noqa: UP045
    team: Annotated[Optional[str], typer.Option("--team", help="With jobs of this team.", rich_help_panel=FILTERS)] = None,  # noqa: UP045
    project: Annotated[Optional[str], typer.Option("--project", help="With jobs of this project.", rich_help_panel=FILTERS)] = None,  # noqa: UP045
    since: Since = None,
    until: Until = None,
    limit: Limit = 1000,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Machines, their devices and what runs there. Times are of the last heartbeat.

    \b
    trainhouse nodes
    trainhouse nodes --state LOST --since 1d --json
    """
    import time

    from trainhouse.cli import output
    from trainhouse.client.wiring import sql_of_settings

    query = query_of(
        time.time_ns() // 1_000_000, pool=pool, state=state, user=user, team=team, project=project, since=since, until=until, limit=limit
    )
    found = sql_of_settings().table(query)
    if json:
        output.json_lines(found.dicts())
        return
    if not found.rows:
        output.remark("no nodes: is an agent up? `trainhouse ps` shows it")
        return
    output.table(found.columns, found.rows, right=("devices", "ranks", "cpus", "memory_gib", "silent_s"))


def query_of(
    now_ms: int,
    *,
    pool: str | None,
    state: list[str] | None,
    user: str | None,
    team: str | None,
    project: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> str:
    """The query; pure. Raises CliError for a filter that says nothing."""
    from trainhouse.cli.filters import parse_time
    from trainhouse.client.sql import literal

    where = ["1"]
    states = [s.upper() for each in state or () for s in each.split(",")]
    for each in states:
        if each not in STATES:
            raise CliError(f"{each!r} is no state of a node; there are {', '.join(STATES)}", Exit.USAGE)
    if states:
        where.append(f"state IN ({', '.join(map(literal, states))})")
    if pool:
        where.append(f"pool = {literal(pool)}")
    for text, sign in ((since, ">="), (until, "<")):
        if text:
            where.append(f"coalesce(last_heartbeat_at, registered_at) {sign} fromUnixTimestamp64Milli({parse_time(text, now_ms)})")
    owners = [f"{n} = {literal(v)}" for n, v in (("user", user), ("team", team), ("project", project)) if v]
    if owners:
        where.append(f"node_id IN (SELECT arrayJoin(node_ids) FROM jobs WHERE {' AND '.join(owners)})")
    return (
        "SELECT node_id AS node, state, if(restriction = 'NONE', '', restriction) AS closed, pool, address, devices, "
        "device_type AS type, ranks_running AS ranks, cpus, "
        "round(memory_bytes / 1073741824, 1) AS memory_gib, "
        "round(dateDiff('millisecond', coalesce(last_heartbeat_at, registered_at), now64(3)) / 1000, 1) AS silent_s, "
        "toString(last_heartbeat_at) AS last_heartbeat, if(state = 'LOST', lost_reason, restriction_reason) AS reason "
        f"FROM nodes WHERE {' AND '.join(where)} ORDER BY pool, node_id LIMIT {limit}"
    )
