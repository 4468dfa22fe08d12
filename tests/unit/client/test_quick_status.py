"""The quick status of a job: final as the tables have it, else only while they keep up."""

from __future__ import annotations

from typing import Any

import pytest

from trainhouse.client.quick.quick_reads import TableReads
from trainhouse.client.rows import PLAIN, TIMES, aged_job_query
from trainhouse.client.sql import Table


class OneRow:
    """The answer to the one question about a job whose ranks are nowhere."""

    def __init__(self, **values: Any) -> None:
        row = dict.fromkeys((*PLAIN, *TIMES, "purpose", "last_checkpoint_step", "last_checkpoint_commit", "last_checkpoint_uri"))
        self.row = row | {"job_id": "j", "status_seq": 3, "node_ids": []} | values

    def table(self, query: str) -> Table:
        assert query == aged_job_query("j")
        return Table(tuple(self.row), (tuple(self.row.values()),))


@pytest.mark.parametrize(
    ("state", "status_age_ms", "tables_age_ms", "is_known"),
    [
        ("RUNNING", 3_600_000, 900, True),
        ("RUNNING", 900, 3_600_000, True),
        ("RUNNING", 60_000, 60_000, False),
        ("PENDING", 60_000, -60_000, False),
        ("SUCCEEDED", 3_600_000, 3_600_000, True),
    ],
)
def test_a_status_that_may_change_is_of_tables_that_keep_up(state: str, status_age_ms: int, tables_age_ms: int, is_known: bool) -> None:
    sql = OneRow(state=state, status_age_ms=status_age_ms, tables_age_ms=tables_age_ms)
    found = TableReads(sql).status("j")  # type: ignore[arg-type]
    assert (found is not None) is is_known and (found is None or found["state"] == state)
