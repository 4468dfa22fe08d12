"""The chain of a model's stages: dense and ordered whatever is killed, repeated or late; damage is never taken for an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.profiles import examples
from trainhouse.checkpointing.errors import ChainConflictError, DamagedError, ObjectStoreUnavailableError, UnknownFormatError
from trainhouse.checkpointing.models.stage_chain import StagedVersion, StageRecord, append, encode, head, history, newest, read, stage_key
from trainhouse.checkpointing.stores.object_store import Body

SHA = "ab" * 32


def version(number: int) -> StagedVersion:
    return StagedVersion(version=number, semver=f"0.{number}.0", content=SHA)


def record(decision: int, name: str = "gpt", champion: int = 1) -> StageRecord:
    return StageRecord(
        project="default",
        name=name,
        decision=decision,
        kind="promoted",
        subject=version(champion),
        champion=version(champion),
        at_ms=10**12,
    )


def places(objects: MemoryObjectStore) -> list[int]:
    return [found.decision for found in reversed(list(history(objects, "default", "gpt")))]


def test_the_newest_record_names_the_stages() -> None:
    objects = MemoryObjectStore()
    assert newest(objects, "default", "gpt") is None and head(objects, "default", "gpt") == -1
    assert [append(objects, record(decision, champion=decision)) for decision in (1, 4, 9)] == [0, 1, 2]
    found = newest(objects, "default", "gpt")
    assert found is not None and found.champion == version(9) and places(objects) == [1, 4, 9]
    assert newest(objects, "other", "gpt") is None and newest(objects, "default", "gp") is None


def test_the_same_record_again_has_the_same_number() -> None:
    objects = MemoryObjectStore()
    for _ in range(2):
        assert [append(objects, record(decision)) for decision in (1, 2, 3)] == [0, 1, 2]
    assert append(objects, record(2), known=1) == 1 and places(objects) == [1, 2, 3]


@pytest.mark.parametrize("late", [record(2), record(3, champion=7), record(0)])
def test_a_record_that_the_chain_went_past_is_refused(late: StageRecord) -> None:
    objects = MemoryObjectStore()
    for decision in (1, 3, 5):
        append(objects, record(decision))
    with pytest.raises(ChainConflictError, match="stop one"):
        append(objects, late)
    assert places(objects) == [1, 3, 5]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", DamagedError),
        (b"[]", DamagedError),
        (b'{"sha256":"x","record":{}}', DamagedError),
        (b"x" * (1 << 21), DamagedError),
        (encode(0, record(5)), DamagedError),
        (encode(1, record(5)).replace(b'"version":1', b'"version":2'), DamagedError),
        (encode(1, record(5, name="other")), DamagedError),
    ],
)
def test_damage_is_no_answer(content: bytes, error: type[Exception]) -> None:
    objects = MemoryObjectStore()
    append(objects, record(1))
    append(objects, record(2))
    objects.put(stage_key("default", "gpt", 1), content)
    with pytest.raises(error):
        newest(objects, "default", "gpt")
    with pytest.raises(error):
        append(objects, record(3))
    assert head(objects, "default", "gpt") == 1


def test_a_newer_format_says_so() -> None:
    import hashlib

    import orjson

    objects = MemoryObjectStore()
    inner = orjson.loads(encode(0, record(1)))["record"] | {"format": 2, "more": 1}
    body = orjson.dumps(inner, option=orjson.OPT_SORT_KEYS)
    objects.put(stage_key("default", "gpt", 0), orjson.dumps({"sha256": hashlib.sha256(body).hexdigest(), "record": inner}))
    with pytest.raises(UnknownFormatError, match="format 2"):
        newest(objects, "default", "gpt")


def test_a_gap_is_damage() -> None:
    objects = MemoryObjectStore()
    for decision in (1, 2, 3):
        append(objects, record(decision))
    objects.delete(stage_key("default", "gpt", 1))
    with pytest.raises(DamagedError, match="missing"):
        places(objects)
    assert read(objects, "default", "gpt", 2).decision == 3


class Lossy(MemoryObjectStore):
    """Loses answers of conditional puts: of each, the write, the answer or nothing, as drawn."""

    def __init__(self, faults: Iterator[str]) -> None:
        super().__init__()
        self._faults = faults

    def put_if_absent(self, key: str, body: Body) -> bool:
        fault = next(self._faults, "none")
        if fault == "before":
            raise ObjectStoreUnavailableError("away")
        done = super().put_if_absent(key, body)
        if fault == "after":
            raise ObjectStoreUnavailableError("away")
        return done


@given(st.lists(st.sampled_from(["none", "before", "after"]), max_size=40), st.integers(1, 8))
@settings(max_examples=examples(100), deadline=None)
def test_lost_answers_and_repeats_leave_each_record_once(faults: list[str], count: int) -> None:
    objects = Lossy(iter(faults))
    for decision in range(1, count + 1):
        while True:
            try:
                assert append(objects, record(decision)) == decision - 1
                break
            except ObjectStoreUnavailableError:
                continue
    assert places(objects) == list(range(1, count + 1))


def test_two_writers_of_one_journal_leave_each_record_once() -> None:
    objects = MemoryObjectStore()
    errors: list[Exception] = []

    def write() -> None:
        try:
            for decision in range(1, 30):
                append(objects, record(decision))
        except Exception as error:
            errors.append(error)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not errors and places(objects) == list(range(1, 30))
