"""Log lines of a job's ranks, from SQL, attempt by attempt in the order in which agents sent them, as the gateway gives them.

Holds: a line is given once, however often the table is asked; one answer has at most BATCH_LINES lines.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trainhouse.client.backend_protocol import BATCH_LINES, CATCH_UP_S, Line, Sql
from trainhouse.client.sql import literal

Stream = tuple[int, int, str]


@dataclass
class LogReader:
    """Reads on from where it stopped, for each rank and stream. `reach`: waits so long until tables hold what brokers do."""

    sql: Sql
    job_id: str
    rank: int | None = None
    stream: str | None = None
    attempt: int | None = None
    reach: Callable[[float], None] | None = None
    _read: dict[Stream, int] = field(default_factory=dict)

    def more(self) -> Iterator[Line]:
        """Yields what is new, up to BATCH_LINES; nothing means: all that there is was read. Blocks."""
        for row in self.sql.table(query_of(self.job_id, self.rank, self.stream, self.attempt, self._read)).rows:
            line = Line(*row)
            self._read[line.epoch, line.rank, line.stream] = line.offset
            yield line

    def catch_up(self, wait_s: float = CATCH_UP_S) -> None:
        """Waits until the tables hold what the brokers do, where it is known how. Blocks for `wait_s` at most."""
        if self.reach is not None:
            self.reach(wait_s)

    def skip_to_last(self, lines: int) -> None:
        """Passes over all but the last lines of each rank and stream. Blocks."""
        where = conditions(self.job_id, self.rank, self.stream, self.attempt)
        query = (
            f"SELECT epoch, rank, stream, arraySort(groupArray(offset)) AS o, o[-{lines + 1}] "
            f"FROM (SELECT * FROM logs WHERE {where} ORDER BY epoch DESC, offset DESC LIMIT {lines + 1} BY epoch, rank, stream) "
            f"GROUP BY epoch, rank, stream HAVING length(o) > {lines}"
        )
        for epoch, rank, stream, _, before in self.sql.table(query).rows:
            self._read[epoch, rank, stream] = before


def conditions(job_id: str, rank: int | None, stream: str | None, attempt: int | None) -> str:
    """The filter as SQL."""
    wanted: tuple[tuple[str, Any], ...] = (("job_id", job_id), ("rank", rank), ("stream", stream), ("attempt", attempt))
    found = [f"{name} = {literal(value)}" for name, value in wanted if value is not None]
    # Stacks of ranks that hung are nothing that the ranks wrote: they are given where they are asked for.
    return " AND ".join(found if stream is not None else [*found, "stream != 'stacks'"])


def query_of(job_id: str, rank: int | None, stream: str | None, attempt: int | None, read: dict[Stream, int]) -> str:
    """Lines after what was read, oldest first."""
    where = conditions(job_id, rank, stream, attempt)
    if read:
        known = " OR ".join(f"(epoch = {e} AND rank = {r} AND stream = {literal(s)} AND offset > {o})" for (e, r, s), o in read.items())
        streams = ", ".join(f"({e}, {r}, {literal(s)})" for e, r, s in read)
        where += f" AND ({known} OR (epoch, rank, stream) NOT IN ({streams}))"
    # Epoch first: an attempt's lines come before the next one's. Within, the order on the topic, where a job has one partition: it is the
    # same for who reads later and who follows. Times are no order: a rank's two streams are read in turn.
    return (
        "SELECT toString(time), epoch, attempt, rank, stream, offset, line FROM logs "
        f"WHERE {where} ORDER BY epoch, source_partition, source_offset, offset, rank, stream LIMIT {BATCH_LINES}"
    )
