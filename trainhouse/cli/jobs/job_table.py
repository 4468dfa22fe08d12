"""The list of jobs for a person.

Holds: pure but for the printing.
"""

from typing import Any, Final

DROP: Final = ("project", "user", "name", "submitted", "ranks", "steps/s", "elapsed", "loss", "reason", "step")


def show(rows: list[dict[str, Any]]) -> None:
    """Prints rows as a table for a person."""
    from trainhouse.cli.shared import output

    if not rows:
        output.remark("no jobs; submit one with `trainhouse submit -- python train.py`")
        return
    columns = ("job", "name", "state", "user", "project", "ranks", "step", "loss", "steps/s", "elapsed", "submitted", "reason")
    right = ("ranks", "step", "loss", "steps/s", "elapsed")
    output.table(columns, map(_cells, rows), right=right, drop=DROP, whole=("job", "state", "submitted"))


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    from trainhouse.cli.shared.output import clock, duration, one_line

    return (
        row["job_id"] or row["submission_id"],
        row["name"],
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
