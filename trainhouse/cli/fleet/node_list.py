"""`nodes`: the machines of the fleet, or the page of one of them."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import FILTERS, DataDir, Json, Limit, Pool, Since, Until

if TYPE_CHECKING:
    from trainhouse.client.backend_protocol import Sql, WayIn
    from trainhouse.client.filters import JobFilter
    from trainhouse.client.quick.quick_reads import QuickReads

MAX_JOBS = 100_000
SHOWN_CHARS = 16
DROP = ("address", "last_heartbeat", "cpus", "memory_gib", "reason", "silent_s", "type", "pool")
STATES = ("ALIVE", "SUSPECTED", "LOST")
ISOLATIONS = "SELECT node_id, any(complete) AS complete FROM node_isolation GROUP BY node_id"
WHOLE, IN_PART, NOT_ISOLATED = "whole", "in part", "none"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("nodes")(nodes)


def nodes(
    node: Annotated[
        str | None,
        typer.Argument(metavar="[NODE]", help="Only this one, and all of it.", show_default=False, autocompletion=complete.nodes),
    ] = None,
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
    """List machines, devices and what runs there; times are of the last heartbeat. Of one NODE: its state, why it is closed, faults of its
    devices, failures, and its history since --since (7d).

    \b
    trainhouse nodes
    trainhouse nodes --state LOST --since 1d --json
    trainhouse nodes n17
    """
    import time

    if node is not None:
        no_filters(node, (pool, state, user, team, project, until))
        one(node, since or "7d", min(limit, 50), json, time.time_ns() // 1_000_000)
        return
    now_ms = time.time_ns() // 1_000_000
    wanted = keeper(now_ms, pool=pool, state=state, since=since, until=until)
    from trainhouse.client.filters import JobFilter
    from trainhouse.client.quick.quick_reads import asked

    keep = JobFilter(user=user, team=team, project=project) if user or team or project else None
    found = asked(lambda reads: _listed(reads, wanted, keep, limit), lambda client: _listed(client.way, wanted, keep, limit))
    _show_all(*found, now_ms, json=json)


def _listed(
    asked: "QuickReads | WayIn", wanted: Callable[[Mapping[str, Any]], bool], keep: "JobFilter | None", limit: int
) -> tuple[list[dict[str, Any]], dict[str, str] | None]:
    """Nodes, of which those alone that have jobs of `keep`, and how they isolate jobs. Blocks."""
    known = [row for row in asked.nodes() if wanted(row)]
    if keep is not None:
        theirs = {name for job in asked.jobs(keep, MAX_JOBS) for name in job["node_ids"]}
        known = [row for row in known if row["node_id"] in theirs]
    known = known[:limit]
    return known, _isolations(asked.sql) if known else None


def _show_all(known: list[dict[str, Any]], isolation: dict[str, str] | None, now_ms: int, *, json: bool) -> None:
    """Prints nodes for a program or a person, with a warning on those that do not isolate jobs."""
    from trainhouse.cli.shared import output

    found = [shown(row, now_ms) for row in known]
    if json:
        found = [row | ({"isolation": isolation.get(row["node"], NOT_ISOLATED)} if isolation is not None else {}) for row in found]
        output.json_lines(found)
        return
    if not found:
        output.remark("no nodes: is an agent up? `trainhouse ps` shows it")
        return
    show(found)
    if isolation is not None and (warning := not_isolated(known, isolation)):
        output.remark(warning)


def show(found: list[dict[str, Any]]) -> None:
    """Prints nodes as a table for a person."""
    from trainhouse.cli.shared import output

    right = ("devices", "ranks", "cpus", "memory_gib", "silent_s")
    output.table(tuple(found[0]), (tuple(row.values()) for row in found), right=right, drop=DROP)


def _isolations(sql: "Sql") -> dict[str, str] | None:
    """By node; None for one who may not ask in SQL."""
    from trainhouse.client.errors import AccessDeniedError

    try:
        return isolations(sql.table(ISOLATIONS).dicts())
    except AccessDeniedError:
        return None


def isolations(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the isolation of jobs by node; one that is absent does not isolate, or does not report it. Pure."""
    return {row["node_id"]: WHOLE if row["complete"] else IN_PART for row in rows}


def not_isolated(rows: Iterable[Mapping[str, Any]], isolation: Mapping[str, str]) -> str:
    """Returns the number of live nodes that run jobs without whole isolation, and the first of them; empty where none does. Pure."""
    here = [str(row["node_id"]) for row in rows if row["state"] != "LOST"]
    found = [node for node in here if isolation.get(node) != WHOLE]
    if not found:
        return ""
    named = ", ".join(found) if len(", ".join(found)) <= SHOWN_CHARS else f"{found[0]} …"
    return f"{len(found)} of {len(here)} nodes do not isolate jobs whole: {named}; see `trainhouse nodes {found[0]}`"


def no_filters(node: str, filters: Iterable[object]) -> None:
    """Raises CliError if any is given."""
    if any(filters):
        raise CliError(f"filters are for the list; `trainhouse nodes {node}` takes --since, --limit and --json", Exit.USAGE)


def one(node: str, since: str, limit: int, json: bool, now_ms: int) -> None:
    """The page of one node, with `limit` failures and things that happened at most."""
    from trainhouse.cli.fleet import node_page
    from trainhouse.cli.shared import output
    from trainhouse.cli.shared.filters import parse_time
    from trainhouse.client.quick.quick_reads import asked

    def page_of(endpoint: "Sql") -> dict[str, Any]:
        return node_page.gather(lambda sql, values: endpoint.table(sql, values).dicts(), node, parse_time(since, now_ms), limit)

    page = asked(lambda reads: page_of(reads.sql), lambda client: page_of(client.sql))
    if json:
        output.json_lines([page])
    else:
        node_page.show(page, now_ms)


def keeper(
    now_ms: int, *, pool: str | None, state: list[str] | None, since: str | None, until: str | None
) -> Callable[[Mapping[str, Any]], bool]:
    """Returns a filter of rows of nodes. Raises CliError for a filter that says nothing."""
    from trainhouse.cli.shared.filters import parse_time

    states = [s.upper() for each in state or () for s in each.split(",")]
    for each in states:
        if each not in STATES:
            raise CliError(f"{each!r} is no state of a node; there are {', '.join(STATES)}", Exit.USAGE)
    since_ms = parse_time(since, now_ms) if since else None
    until_ms = parse_time(until, now_ms) if until else None

    def keeps(row: Mapping[str, Any]) -> bool:
        at_ms = row["last_heartbeat_at_ms"] or row["registered_at_ms"] or 0
        in_time = (since_ms is None or at_ms >= since_ms) and (until_ms is None or at_ms < until_ms)
        return in_time and (not states or row["state"] in states) and pool in (None, row["pool"])

    return keeps


def shown(row: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """A node as the list shows it. Pure."""
    from trainhouse.cli.shared.output import clock

    at_ms = row["last_heartbeat_at_ms"] or row["registered_at_ms"]
    return {
        "node": row["node_id"],
        "state": row["state"],
        "closed": "" if row["restriction"] == "NONE" else row["restriction"],
        "pool": row["pool"],
        "address": row["address"],
        "devices": row["devices"],
        "type": row["device_type"],
        "ranks": row["ranks_running"],
        "cpus": row["cpus"],
        "memory_gib": round((row["memory_bytes"] or 0) / 2**30, 1),
        "silent_s": max(0.0, round((now_ms - at_ms) / 1000, 1)) if at_ms else None,
        "last_heartbeat": clock(row["last_heartbeat_at_ms"]) or None,
        "reason": row["lost_reason"] if row["state"] == "LOST" else row["restriction_reason"],
    }
