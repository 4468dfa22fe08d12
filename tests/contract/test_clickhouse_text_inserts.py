"""What every batch writes beside its rows (positions, marks) goes into the engine as text: the same values as by Arrow, each token once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.tables.migrated import connect_migrated
from trainhouse.projections.store.clickhouse import EXACT_INSERT, ConnectClickHouse

MOST = 2**64 - 1
ODD = [
    "a'b",
    "back\\slash\\",
    "line\nfeed\ttab\r",
    "nul\0in it",
    "{x:String}",
    "%(x)s %s",
    "; DROP TABLE positions; --",
    "/* */",
    "é日本🚂",
    "",
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectClickHouse]:
    made = connect_migrated(tmp_path_factory.mktemp("text") / "data", 1024**3, 2)
    yield made
    made.close()


def marks(lane: str, streams: list[str], mark: int) -> pa.Table:
    whole = pa.array([mark] * len(streams), pa.uint64())
    return pa.table({"lane": [lane] * len(streams), "stream": streams, "batch": whole, "mark": whole, "before": whole})


def stored(engine: ConnectClickHouse, lane: str) -> list[tuple[str, int]]:
    """Streams and their newest marks."""
    rows = engine.rows("SELECT stream, mark FROM high_water FINAL WHERE lane = {lane:String}", {"lane": lane})
    return sorted((str(stream), int(mark)) for stream, mark in rows)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stream=st.one_of(st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]))),
    mark=st.one_of(st.sampled_from([0, 2**63, MOST]), st.integers(0, MOST)),
)
def test_any_name_and_any_number_is_stored_as_it_is(engine: ConnectClickHouse, stream: str, mark: int) -> None:
    lane = f"lane {stream!a} {mark}"
    engine.insert("high_water", marks(lane, [stream], mark), f"{lane}:token")
    assert stored(engine, lane) == [(stream, mark)]


@pytest.mark.parametrize("count", [1, 64, 65])
def test_a_repeat_with_the_same_token_adds_nothing_whichever_way_it_goes(engine: ConnectClickHouse, count: int) -> None:
    lane, token = f"again {count}", f"it's \\{count}"
    streams = [f"{n:03} {ODD[n % len(ODD)]}" for n in range(count)]
    engine.insert("high_water", marks(lane, streams, 7), token)
    engine.insert("high_water", marks(lane, streams, 8), token)
    engine._client.insert_arrow("high_water", marks(lane, streams, 9), settings=EXACT_INSERT | {"insert_deduplication_token": token})
    assert stored(engine, lane) == [(stream, 7) for stream in sorted(streams)]
    engine.insert("high_water", marks(lane, streams, 8), f"{token} of another batch")
    assert stored(engine, lane) == [(stream, 8) for stream in sorted(streams)]
