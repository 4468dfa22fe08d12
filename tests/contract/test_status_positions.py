"""Where the tables are in the topic of statuses, as a command reads it with a job's row: from there it looks for a newer status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.tables.alert_tables import SQL_PASSWORD, tables_in
from trainhouse.client.quick.quick_reads import TableReads
from trainhouse.client.quick.quick_topics import QuickTopics
from trainhouse.client.sql import SqlEndpoint
from trainhouse.events import JobId, JobState, JobStatus
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.wire.topics import STATUS
from trainhouse.projections.store.positions import Batch, Positions, Range


class Empty(QuickTopics):
    """Nothing newer. It keeps what was asked."""

    def messages(self, topic: str, since: Mapping[int, int] | None = None) -> Iterator[Any]:
        ASKED.append((topic, since))
        return iter(())


ASKED: list[tuple[str, Mapping[int, int] | None]] = []


def test_a_newer_status_is_looked_for_from_where_the_tables_are(tmp_path: Path) -> None:
    job = JobStatus(job_id=JobId("j"), status_seq=3, state=JobState.INITIALIZING, updated_at_ms=wall_ms())
    with tables_in(tmp_path / "clickhouse") as tables:
        positions = Positions(tables.clickhouse, "facts")
        batches = [Batch("facts", n, (Range(STATUS, 0, 10 * n, 10 * n + 10), Range(STATUS, 1, n, n + 1))) for n in (1, 2)]
        for batch in batches:
            positions.begin(batch)
            tables.put(STATUS, [job.model_copy(update={"status_seq": job.status_seq + batch.number})])
            positions.complete(batch)
        endpoint = SqlEndpoint(f"http://{tables.url.rpartition('@')[2]}", "trainhouse", SQL_PASSWORD)
        reads = TableReads(endpoint, SimpleNamespace(topics=Empty({})))  # type: ignore[arg-type]
        found = reads.status("j")
        assert found is not None and (found["state"], found["status_seq"]) == ("INITIALIZING", 5)
        positions.settle()
        assert reads.status("j") == found
    assert ASKED == [(STATUS, {0: 20}), (STATUS, {0: 30})], "a batch whose end is not noted is read again"
