"""Settled jobs: one contract for the index in memory and the one in files; and what only files can suffer."""

import itertools
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from trainhouse.scheduler.core.errors import StateLost
from trainhouse.scheduler.core.intake.settled_memory import MemorySettledJobs
from trainhouse.scheduler.core.protocol.settled import Segment, SettledJobs, content_of, jobs_in, segment_of
from trainhouse.scheduler.stream.settled import settled_partition
from trainhouse.scheduler.stream.settled.settled_files import SettledFiles
from trainhouse.scheduler.stream.settled.settled_index import SettledIndex
from trainhouse.scheduler.stream.settled.temporary_folder import TemporaryFolder

Table = dict[str, bytes]


def table(name: str, jobs: int = 50, seed: int = 1) -> Table:
    dice = Random(seed)
    return {f"{name}-{dice.getrandbits(40):x}": dice.randbytes(2 + 8 * dice.randrange(6)) for _ in range(jobs)}


def segment(number: int, jobs: Table) -> Segment:
    return segment_of(number, len(jobs), content_of(jobs))


class Objects(dict[str, bytes]):
    """Segments as an object store has them; counts what is asked for."""

    def __init__(self, *tables: Table) -> None:
        super().__init__({segment(n, t).sha256: content_of(t) for n, t in enumerate(tables)})
        self.asked = list[int]()

    def fetch(self, wanted: Segment) -> bytes | None:
        self.asked.append(wanted.number)
        return self.get(wanted.sha256)


@pytest.fixture(params=["memory", "files", "temporary files"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SettledJobs]:
    if request.param == "memory":
        yield MemorySettledJobs()
        return
    files = SettledIndex(tmp_path / "index" if request.param == "files" else None, cache_bytes=1 << 20)
    yield files
    files.close()


def holds(index: SettledJobs, tables: list[Table], segments: int | None = None, partition: int = 0) -> bool:
    """Whether exactly the jobs of the first tables are there."""
    count = len(tables) if segments is None else segments
    return all(
        index.entry(partition, job, count) == (entry if number < count else None)
        for number, jobs in enumerate(tables)
        for job, entry in jobs.items()
    )


@pytest.mark.parametrize("jobs", [1, 300, 5_000])
def test_equal_jobs_make_equal_bytes_and_come_back(jobs: int) -> None:
    found = table("a", jobs)
    shuffled = list(found.items())
    Random(2).shuffle(shuffled)
    assert content_of(dict(shuffled)) == content_of(found) and list(jobs_in(content_of(found))) == sorted(found.items())
    for cut in (1, 20, len(content_of(found)) - 1):
        with pytest.raises(Exception, match="segment"):
            list(jobs_in(content_of(found)[:cut]))


def test_what_is_sealed_is_looked_up_at_once_and_by_the_segments_of_who_asks(index: SettledJobs) -> None:
    tables = [table(name, 700) for name in "abc"]
    sealing = [index.seal(0, number, jobs) for number, jobs in enumerate(map(dict, tables))]
    assert all(holds(index, tables, count) for count in (1, 2, 3))
    assert [s.segment() for s in sealing] == [segment(n, t) for n, t in enumerate(tables)]
    assert all(s.sealed for s in sealing) and holds(index, tables) and index.entry(0, "unknown", 3) is None
    assert [index.content(0, s.segment()) for s in sealing] == [content_of(t) for t in tables]
    assert index.seal(1, 0, table("other")).segment().number == 0
    assert index.entry(1, next(iter(tables[0])), 1) is None, "another partition's"


def test_segments_that_are_missing_are_fetched_and_others_are_not(index: SettledJobs) -> None:
    tables = [table(name) for name in "abc"]
    objects, segments = Objects(*tables), [segment(n, t) for n, t in enumerate(tables)]
    index.attach(0, segments[:2], objects.fetch)
    assert objects.asked == [0, 1] and holds(index, tables, 2)
    index.attach(0, segments, objects.fetch)
    assert objects.asked == [0, 1, 2] and holds(index, tables)
    index.attach(0, segments[:1], objects.fetch)
    assert objects.asked == [0, 1, 2] and holds(index, tables, 1)


@pytest.mark.parametrize("value", [None, b"", b"junk", content_of({"j": b"xx"})])
def test_a_segment_that_is_nowhere_or_another_is_refused(index: SettledJobs, value: bytes | None) -> None:
    with pytest.raises(StateLost, match="SHA-256"):
        index.attach(0, [segment(0, table("a"))], lambda _: value)


def test_folding_anew_gives_the_same_segments_and_another_history_replaces_them(index: SettledJobs) -> None:
    tables = [table(name) for name in "abcd"]
    for number, jobs in enumerate(tables):
        index.seal(0, number, dict(jobs)).segment()
    for number, jobs in enumerate(tables[:2]):
        assert index.seal(0, number, dict(jobs)).segment() == segment(number, jobs)
        assert holds(index, tables, number + 1)
    other = [*tables[:2], {**table("e"), **dict(list(tables[2].items())[:10])}]
    index.seal(0, 2, dict(other[2])).segment()
    assert holds(index, other)
    assert all(index.entry(0, job, 3) is None for jobs in tables[2:] for job in jobs if job not in other[2]), "of a history that is no more"
    with pytest.raises(Exception, match="segment"):
        index.seal(0, 7, table("f"))


# What follows is of files alone.


def filled(folder: Path, tables: list[Table]) -> None:
    index = SettledIndex(folder, cache_bytes=1 << 20)
    for number, jobs in enumerate(tables):
        index.seal(0, number, dict(jobs)).segment()
    index.close()


def opened_again(folder: Path, tables: list[Table], objects: Objects) -> None:
    index = SettledIndex(folder, cache_bytes=1 << 20)
    index.attach(0, [segment(n, t) for n, t in enumerate(tables)], objects.fetch)
    assert holds(index, tables) and index.entry(0, "unknown", len(tables)) is None
    index.close()


def test_a_process_that_starts_again_asks_for_nothing(tmp_path: Path) -> None:
    tables = [table(name, 2_000) for name in "abc"]
    filled(tmp_path, tables)
    objects = Objects(*tables)
    opened_again(tmp_path, tables, objects)
    assert not objects.asked


def test_another_process_on_the_same_folder_uses_one_of_its_own(tmp_path: Path) -> None:
    tables = [table("a")]
    first = SettledIndex(tmp_path)
    first.seal(0, 0, dict(tables[0])).segment()
    opened_again(tmp_path, tables, Objects(*tables))
    assert holds(first, tables)
    first.close()


HARMS = ["flip", "cut", "remove", "junk manifest", "all gone"]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("suffix", [".sst", ".log", "CURRENT"])
def test_files_that_are_damaged_or_gone_are_written_anew(tmp_path: Path, harm: str, suffix: str) -> None:
    tables = [table(name, 3_000, seed) for seed, name in enumerate("abc")]
    filled(tmp_path, tables)
    compacted(tmp_path)
    for path in sorted(p for p in (tmp_path / "0").iterdir() if p.name.endswith(suffix)):
        hurt(path, harm)
    index, objects = SettledIndex(tmp_path, cache_bytes=1 << 20), Objects(*tables)
    segments = [segment(n, t) for n, t in enumerate(tables)]
    index.attach(0, segments, objects.fetch)
    try:
        assert holds(index, tables), "never another answer"
    except StateLost:
        with pytest.raises(StateLost):
            index.entry(0, "any", 1)
        index.attach(0, segments, objects.fetch)
        assert objects.asked == [0, 1, 2]
    assert holds(index, tables)
    index.close()


def compacted(folder: Path) -> None:
    """All that is in the log of writes goes to tables."""
    files = SettledFiles(folder / "0", SettledIndex()._cache)
    files._opened().flush()
    files.close()


def hurt(path: Path, harm: str) -> None:
    data = bytearray(path.read_bytes())
    if harm == "all gone":
        for other in path.parent.iterdir():
            other.unlink()
    elif harm == "remove":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif harm == "junk manifest":
        [manifest, *_] = path.parent.glob("MANIFEST-*")
        manifest.write_bytes(b"junk" * 100)
    elif data:
        for at in range(len(data) // 3, len(data), max(len(data) // 7, 1)):
            data[at] ^= 0xFF
        path.write_bytes(data)


class Killed(BaseException):
    """The process is killed."""


@pytest.mark.parametrize("at", [0, 1, 2, 6, 12, 13])
@pytest.mark.parametrize("same", [True, False])
def test_killed_while_a_segment_is_written(tmp_path: Path, at: int, same: bool) -> None:
    """After any write, also where the journal was repaired since and the segment is another one."""
    before, then = table("a", 1_000), table("b", 3_000, 2)
    files = SettledFiles(tmp_path / "0", SettledIndex()._cache)
    files.put(segment(0, before), content_of(before))
    count, write = itertools.count(), files._write

    def killed(batch: object) -> None:
        if next(count) == at:
            raise Killed
        write(batch)  # type: ignore[arg-type]

    files._write = killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        files.put(segment(1, then), content_of(then))
    files.close()
    after = then if same else {**table("c", 500, 3), **dict(itertools.islice(then.items(), 100))}
    index = SettledIndex(tmp_path, cache_bytes=1 << 20)
    index.attach(0, [segment(0, before)], Objects().fetch)
    assert all(index.entry(0, job, 1) is None for job in then)
    assert index.seal(0, 1, dict(after)).segment() == segment(1, after)
    assert holds(index, [before, after]) and all(index.entry(0, job, 2) is None for job in then if job not in after)
    index.close()


def test_a_full_disk_keeps_tables_in_memory_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled_partition, "RETRY_S", 0.01)
    monkeypatch.setattr(settled_partition, "WAIT_S", 0.05)
    full, put = [True], SettledFiles.put

    def refusing(self: SettledFiles, what: Segment, content: bytes) -> None:
        if full[0]:
            raise OSError(28, os.strerror(28))
        put(self, what, content)

    monkeypatch.setattr(SettledFiles, "put", refusing)
    tables = [table("t", 20, seed) for seed in range(settled_partition.MOST_WAITING + 1)]
    index = SettledIndex(tmp_path)
    waiting = [index.seal(0, number, dict(jobs)) for number, jobs in enumerate(tables[:-1])]
    assert holds(index, tables[:-1]) and not waiting[0].sealed
    with pytest.raises(StateLost, match="disk"):
        index.seal(0, len(tables) - 1, dict(tables[-1]))
    full[0] = False
    assert [w.segment() for w in waiting] == [segment(n, t) for n, t in enumerate(tables[:-1])]
    assert holds(index, tables[:-1])
    index.close()


def test_a_disk_that_refuses_holds_up_nobody_who_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Event()

    def refusing(self: SettledFiles, what: Segment, content: bytes) -> None:
        tried.set()
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(SettledFiles, "put", refusing)
    index = SettledIndex(tmp_path)
    tables = [table("t", 20, seed) for seed in range(settled_partition.MOST_WAITING)]
    for partition in (0, 1):  # one thread writes for both: the tables of the second are never tried
        for number, jobs in enumerate(tables):
            index.seal(partition, number, dict(jobs))
    assert tried.wait(60)
    for partition in (0, 1):
        began_s = time.monotonic()
        with pytest.raises(StateLost, match=r"segment 0 of settled jobs cannot be written.*No space left"):
            index.seal(partition, len(tables), {"one-more": b"12"})
        assert time.monotonic() - began_s < settled_partition.WAIT_S / 2, "the event loop has other partitions to serve"
    index.close()


def test_one_write_that_fails_halts_no_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, failed = SettledFiles.put, threading.Event()

    def fails_once(self: SettledFiles, what: Segment, content: bytes) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError(28, os.strerror(28))
        put(self, what, content)

    monkeypatch.setattr(SettledFiles, "put", fails_once)
    index = SettledIndex(tmp_path)
    tables = [table("t", 20, seed) for seed in range(settled_partition.MOST_WAITING)]
    for number, jobs in enumerate(tables):
        index.seal(0, number, dict(jobs))
    assert failed.wait(60)
    more = table("t", 20, len(tables))
    index.seal(0, len(tables), dict(more)).segment()
    assert holds(index, [*tables, more])
    index.close()


def test_a_writer_that_gets_on_is_waited_for_and_the_order_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, put, order = threading.Event(), SettledFiles.put, list[int]()

    def slow(self: SettledFiles, what: Segment, content: bytes) -> None:
        assert opened.wait(60)
        order.append(what.number)
        put(self, what, content)

    monkeypatch.setattr(SettledFiles, "put", slow)
    index = SettledIndex(tmp_path)
    tables = [table("t", 20, seed) for seed in range(settled_partition.MOST_WAITING + 2)]
    sealing = [index.seal(0, number, dict(jobs)) for number, jobs in enumerate(tables[:-2])]
    threading.Timer(0.2, opened.set).start()
    sealing += [index.seal(0, number, dict(tables[number])) for number in (len(tables) - 2, len(tables) - 1)]
    assert [s.segment() for s in sealing] == [segment(n, t) for n, t in enumerate(tables)] and holds(index, tables)
    assert order == list(range(len(tables)))
    index.close()


def test_what_a_killed_process_left_is_deleted_and_what_is_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    in_use, ended = TemporaryFolder("kind"), TemporaryFolder("kind")
    os.close(ended._lock)  # as the end of its process does
    (ended.path / "data").write_bytes(b"much")
    (tmp_path / "kind-of-somebody").mkdir()
    again = TemporaryFolder("kind")
    assert {p.name for p in tmp_path.iterdir()} == {in_use.path.name, again.path.name, "kind-of-somebody"}
    again.close()
    in_use.close()
    assert {p.name for p in tmp_path.iterdir()} == {"kind-of-somebody"}
