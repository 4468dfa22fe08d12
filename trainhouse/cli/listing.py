"""The list of jobs: flat rows, from the tables or, where those do not answer, from the status topic.

Holds: both sources give the same names, so that a program need not know which one answered.
"""

from typing import TYPE_CHECKING, Any

from trainhouse.cli.filters import JobFilter

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.events import JobStatus

PLAIN = (
    "job_id",
    "name",
    "project",
    "team",
    "user",
    "pool",
    "priority",
    "state",
    "reason",
    "attempt",
    "epoch",
    "restarts",
    "world_size",
    "step",
    "total_steps",
    "loss",
    "learning_rate",
    "steps_per_s",
    "samples_per_s",
    "elapsed_s",
    "eta_s",
    "submission_id",
    "spec_sha256",
)
TIMES = {
    "submitted_at_ms": "submitted_at",
    "allocated_at_ms": "allocated_at",
    "running_at_ms": "started_at",
    "finished_at_ms": "finished_at",
    "updated_at_ms": "updated_at",
}


def list_jobs(client: "TrainhouseClient", keep: JobFilter, limit: int) -> list[dict[str, Any]]:
    """Rows of jobs, newest first. Blocks."""
    from trainhouse.cli.output import remark
    from trainhouse.client import NotReachable

    try:
        return client.sql.table(query_of(keep, limit)).dicts()
    except NotReachable as error:
        remark(f"{error}; reading the status topic instead")
    rows = sorted((row_of(s) for s in client.statuses().values()), key=lambda r: -(r["submitted_at_ms"] or r["updated_at_ms"]))
    return [r for r in rows if keep.keeps(r)][:limit]


def query_of(keep: JobFilter, limit: int) -> str:
    """The query; pure."""
    from trainhouse.client.sql import literal

    moment = "coalesce(submitted_at, updated_at)"
    where = [f"{n} = {literal(v)}" for n in ("user", "team", "project", "pool") if (v := getattr(keep, n)) is not None]
    if keep.states:
        where.append(f"state IN ({', '.join(map(literal, keep.states))})")
    if keep.since_ms is not None:
        where.append(f"{moment} >= fromUnixTimestamp64Milli({keep.since_ms})")
    if keep.until_ms is not None:
        where.append(f"{moment} < fromUnixTimestamp64Milli({keep.until_ms})")
    times = ", ".join(f"toUnixTimestamp64Milli({column}) AS {name}" for name, column in TIMES.items())
    nodes = "node_ids, last_checkpoint_step, last_checkpoint_uri"
    return f"SELECT {', '.join(PLAIN)}, {nodes}, {times} FROM jobs WHERE {' AND '.join(where) or '1'} ORDER BY {moment} DESC LIMIT {limit}"


def row_of(status: "JobStatus") -> dict[str, Any]:
    """A status as such a row."""
    fields = status.model_dump(mode="json")
    checkpoint = status.last_checkpoint
    return {
        **{name: fields[name] for name in PLAIN},
        "node_ids": [str(p.node_id) for p in status.allocation],
        "last_checkpoint_step": checkpoint.step if checkpoint else None,
        "last_checkpoint_uri": checkpoint.uri if checkpoint else "",
        **{name: fields[name] for name in TIMES},
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Prints rows as a table for a person."""
    from trainhouse.cli import output

    if not rows:
        output.remark("no jobs; submit one with `trainhouse submit -- python train.py`")
        return
    columns = ("job", "state", "user", "project", "ranks", "step", "loss", "steps/s", "elapsed", "submitted", "reason")
    output.table(columns, map(_cells, rows), right=("ranks", "step", "loss", "steps/s", "elapsed"))


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    from trainhouse.cli.output import clock, duration, one_line

    return (
        row["job_id"] or row["submission_id"],
        row["state"],
        row["user"],
        row["project"],
        row["world_size"] or None,
        row["step"] if not row["total_steps"] else f"{row['step'] or 0}/{row['total_steps']}",
        row["loss"],
        row["steps_per_s"],
        duration(row["elapsed_s"]),
        clock(row["submitted_at_ms"] or row["updated_at_ms"]),
        one_line(row["reason"], 100),
    )
