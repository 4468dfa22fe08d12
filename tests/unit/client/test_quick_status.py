"""The quick status of a job: final as the tables have it, else only while they keep up, and the topic has nothing newer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from trainhouse.client.quick.quick_reads import TableReads
from trainhouse.client.quick.quick_topics import NotQuickError, QuickTopics
from trainhouse.client.rows import EXISTS_QUERY, PLAIN, STATUS_TYPE, TAGS_QUERY, TIMES, aged_job_query
from trainhouse.client.sql import Table
from trainhouse.events import DeviceId, JobId, JobState, JobStatus, LastCheckpoint, NodeId, NodePlacement, encode, envelope_of


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


class Tail(QuickTopics):
    """The topic of statuses: offsets, keys and values of the second partition."""

    def __init__(self, *records: tuple[int, str, bytes | None]) -> None:
        super().__init__({})
        object.__setattr__(self, "records", records)

    def messages(self, topic: str, since: Mapping[int, int] | None = None) -> Iterator[Any]:
        assert topic == "trainhouse.status" and since is not None and list(since) == [1]
        for offset, key, value in self.records:  # type: ignore[attr-defined]
            if offset >= since[1]:
                yield SimpleNamespace(offset=lambda n=offset: n, key=key.encode, value=lambda v=value: v)


class Unreadable(QuickTopics):
    """Brokers that do not answer."""

    def messages(self, topic: str, since: Mapping[int, int] | None = None) -> Iterator[Any]:
        raise NotQuickError("nothing came")


def published(seq: int) -> bytes:
    """The status with which the job ended."""
    return encode(envelope_of(ENDED.model_copy(update={"status_seq": seq}), id="e", source="test", now_ms=1))


PLACES = (NodePlacement(node_id=NodeId("n"), boot_id="b", address="a", first_rank=0, devices=(DeviceId("g0"),)),)
SAVED = LastCheckpoint(commit=4, step=40, uri="s3://c/4", completed_at_ms=9)
ENDED = JobStatus(job_id=JobId("j"), status_seq=4, state=JobState.SUCCEEDED, allocation=PLACES, last_checkpoint=SAVED, purpose="trials")
HELD = {"source_topic": "trainhouse.status", "source_partition": 1, "source_offset": 7, "held": [[0, 3], [1, 9]]}
OLD, END, OTHER = (7, "j", published(3)), (9, "j", published(4)), (9, "k", published(4))


@pytest.mark.parametrize(
    ("topics", "held", "state"),
    [
        (Tail(OLD, END), HELD, "SUCCEEDED"),
        (Tail(OLD, OTHER), HELD, "INITIALIZING"),
        # Positions of the batch before: the tables have the row's own record.
        (Tail(OLD, OTHER), HELD | {"held": [[1, 5]]}, "INITIALIZING"),
        (Tail(OLD, END), HELD | {"held": [[1, 5]]}, "SUCCEEDED"),
        (Tail(OLD, (9, "j", published(3))), HELD, "INITIALIZING"),
        # For the whole client: another form, a deleted job, no known place, brokers that are away.
        (Tail((9, "j", END[2].replace(b"status.v1", b"status.v2"))), HELD, None),
        (Tail((9, "j", b"no JSON")), HELD, None),
        (Tail((9, "j", b"[]")), HELD, None),
        (Tail(END, (10, "j", None)), HELD, None),
        (Tail(OLD), HELD | {"held": []}, None),
        (Tail(OLD), HELD | {"source_topic": "trainhouse.decisions"}, None),
        (Unreadable({}), HELD, None),
        (None, HELD, None),
    ],
)
def test_a_status_that_may_change_is_the_newest_on_the_topic(topics: QuickTopics | None, held: dict[str, Any], state: str | None) -> None:
    sql = OneRow(state="INITIALIZING", status_age_ms=900, tables_age_ms=900, **held)
    found = TableReads(sql, SimpleNamespace(topics=topics)).status("j")  # type: ignore[arg-type]
    assert (None if found is None else found["state"]) == state
    if state == "SUCCEEDED":
        assert found == ENDED.model_dump(mode="json"), "whole, with where its ranks are"


def test_a_final_status_is_not_looked_for_on_the_topic() -> None:
    sql = OneRow(state="SUCCEEDED", status_age_ms=900, tables_age_ms=900, **HELD)
    assert TableReads(sql, SimpleNamespace(topics=Unreadable({}))).status("j") is not None  # type: ignore[arg-type]


def test_the_type_of_a_status_is_the_models() -> None:
    assert JobStatus.event_type == STATUS_TYPE


class Tagged:
    """Tables with these rows of tags and of jobs."""

    def __init__(self, tags: tuple[tuple[str, str], ...], jobs: tuple[tuple[str], ...]) -> None:
        self.answers = {TAGS_QUERY: Table(("key", "value"), tags), EXISTS_QUERY: Table(("job_id",), jobs)}

    def table(self, query: str, values: dict[str, str]) -> Table:
        assert values == {"job_id": "j"}
        return self.answers[query]


def test_a_job_without_tags_is_known_from_none() -> None:
    assert TableReads(Tagged((("paper", "icml"),), ())).known_tags("j") == {"paper": "icml"}  # type: ignore[arg-type]
    assert TableReads(Tagged((), (("j",),))).known_tags("j") == {}  # type: ignore[arg-type]
    assert TableReads(Tagged((), ())).known_tags("j") is None  # type: ignore[arg-type]
