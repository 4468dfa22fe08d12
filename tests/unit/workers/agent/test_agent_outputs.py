"""Outputs of a job on its nodes: sealed when all ranks exited with code 0, on the node of rank 0 when all nodes have."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.waiting import until
from tests.unit.workers.agent.test_agent_core import SPEC, Node, gang, release
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.checkpointing.stores.object_store import Body, ObjectStat
from trainhouse.events import AttemptStopped, GangAllocated, NodePlacement, OutputsSealed
from trainhouse.events.model.dataset_keys import manifest_key
from trainhouse.events.model.output_names import rank_piece_key
from trainhouse.events.model.spec import DataReference
from trainhouse.workers.agent.core import AttemptKey, Drained, Seal, Sealed, Swept, Tick
from trainhouse.workers.agent.ship.output_sealer import MOST_PAUSE_MS, RETRY_MS, OutputSealer
from trainhouse.workers.data.outputs.written_output import JobOutputStore, Output
from trainhouse.workers.data.publishing.bounded_files import LocalRoot
from trainhouse.workers.data.publishing.publication import Publication, Terms
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.publishing.split_rule import SplitRule
from trainhouse.workers.data.stored_versions import read_manifest

KEY = AttemptKey("j", 0)


class CountingStore(MemoryObjectStore):
    """Counts its writes and lists."""

    puts = lists = 0

    def put(self, key: str, body: Body) -> None:
        self.puts += 1
        super().put(key, body)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        self.lists += 1
        return super().list(prefix, start_after)


def with_outputs(*names: str, nodes: int = 1) -> GangAllocated:
    spec = SPEC.model_copy(update={"outputs": names})
    parts = [*gang().placements]
    for number in range(1, nodes):
        parts.append(NodePlacement(node_id=f"n{number + 1}", boot_id="b", address="127.0.0.1", first_rank=2 * number, devices=("d8", "d9")))
    return gang().model_copy(update={"spec": spec, "placements": tuple(parts)})


def drained(codes: tuple[int, int], allocation: GangAllocated) -> Node:
    node = Node()
    node.command(allocation)
    node.launch_ends()
    for rank, code in enumerate(codes):
        node.rank_ends(KEY, rank, code)
    node.sweeping.discard(KEY)
    node.give(Swept(KEY))
    node.draining.discard(KEY)
    node.give(Drained(KEY))
    return node


def test_the_last_word_waits_for_the_outputs_and_comes_after_them() -> None:
    node = drained((0, 0), with_outputs("out"))
    assert Seal(KEY) in node.actions and not node.of(AttemptStopped)
    node.give(Sealed(KEY, makes=True, failure="nothing was written"))
    assert [type(e) for e in node.reports[-2:]] == [OutputsSealed, AttemptStopped]
    node.give(Sealed(KEY, makes=True))
    assert len(node.of(OutputsSealed)) == 1


@pytest.mark.parametrize("codes", [(0, 1), (1, 0), (75, 75)])
def test_of_an_attempt_that_did_not_end_well_nothing_is_sealed(codes: tuple[int, int]) -> None:
    node = drained(codes, with_outputs("out"))
    assert Seal(KEY) not in node.actions and node.of(AttemptStopped)


def test_a_job_without_outputs_ends_as_ever() -> None:
    node = drained((0, 0), gang())
    assert Seal(KEY) not in node.actions and node.of(AttemptStopped)


@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_an_attempt_that_is_stopped_while_it_seals_ends_within_its_grace(grace_s: float) -> None:
    node = drained((0, 0), with_outputs("out"))
    node.command(release(grace_s=grace_s))
    assert bool(node.of(AttemptStopped)) == (grace_s == 0)
    node.settle()
    assert len(node.of(AttemptStopped)) == 1 and not node.of(OutputsSealed)


@pytest.mark.parametrize("phase", ["stopping", "sweeping", "draining"])
@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_a_release_before_the_seal_bounds_it_too(phase: str, grace_s: float) -> None:
    node = Node()
    node.command(with_outputs("out"))
    node.launch_ends()
    if phase == "stopping":
        node.command(release(grace_s=5.0))
        node.command(release(grace_s=grace_s or 0.001))
    for rank in (0, 1):
        node.rank_ends(KEY, rank, 0)
    if phase == "sweeping":
        node.command(release(grace_s=grace_s))
    node.sweeping.discard(KEY)
    node.give(Swept(KEY))
    if phase == "draining":
        node.command(release(grace_s=grace_s))
    node.now_ms += 10
    node.draining.discard(KEY)
    node.give(Drained(KEY))
    assert (Seal(KEY) in node.actions) == (grace_s > 0) != bool(node.of(AttemptStopped))
    node.now_ms += 5_000
    node.give(Tick())
    assert len(node.of(AttemptStopped)) == 1 and not node.of(OutputsSealed)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def sealers(store: MemoryObjectStore) -> Iterator[dict[str, OutputSealer]]:
    made = {name: OutputSealer(name, lambda: store) for name in ("n1", "n2")}
    yield made
    for sealer in made.values():
        sealer.close()


def write(store: MemoryObjectStore, epoch: int = 0, rank: int = 0, text: str = "a") -> None:
    with Output(JobOutputStore(store, "j", "out", epoch, rank), rank) as output:
        output.add({"txt": text})


def done(sealer: OutputSealer) -> Sealed:
    clock = iter(range(0, 10**9, RETRY_MS))
    return until(lambda: next(sealer.look(next(clock)), None), "sealed", every_s=0.005)


def test_the_node_of_rank_0_waits_for_the_others(store: MemoryObjectStore, sealers: dict[str, OutputSealer]) -> None:
    write(store)
    allocation = with_outputs("out", nodes=2)
    sealers["n1"].begin(allocation)
    clock = iter(range(0, 10**9, RETRY_MS))
    until(lambda: (list(sealers["n1"].look(next(clock))), list(store.list("jobs/j/ended/")))[1], "noted", every_s=0.005)
    assert not list(store.list("datasets/"))
    sealers["n2"].begin(allocation)
    assert done(sealers["n2"]) == Sealed(KEY)
    sealed = done(sealers["n1"])
    [version] = sealed.versions
    assert (version.dataset, version.project, version.row_count) == ("out", "default", 1) and sealed.makes
    assert store.stat(manifest_key("default", version.sha256))


def test_while_other_nodes_run_a_node_notes_its_own_once_and_looks_ever_less_often() -> None:
    store = CountingStore()
    sealer = OutputSealer("n1", lambda: store)
    sealer.begin(with_outputs("out", nodes=2))
    at_ms = 0
    for now_ms in range(0, 10 * 60_000, RETRY_MS):
        before = store.lists
        list(sealer.look(now_ms))
        # A look that began ends before the clock goes on.
        until(lambda: all(each.working is None or each.working.done() for each in sealer._attempts.values()), "looked", every_s=0.001)
        if store.lists > before:
            at_ms = now_ms
    assert store.puts == 1 and 40 <= store.lists <= 46
    assert at_ms >= 10 * 60_000 - MOST_PAUSE_MS - 2 * RETRY_MS
    sealer.close()


def test_what_is_not_whole_is_a_failure(store: MemoryObjectStore, sealers: dict[str, OutputSealer]) -> None:
    sealers["n1"].begin(with_outputs("out"))
    sealed = done(sealers["n1"])
    assert sealed.makes and not sealed.versions and "output out has no sample" in sealed.failure


def test_a_forged_record_is_a_failure_and_not_tried_again(store: MemoryObjectStore, sealers: dict[str, OutputSealer]) -> None:
    shard = {"sha256": "c" * 64, "index_sha256": "c" * 64, "bytes": 1, "samples": 2**53}
    record = {"closed": True, "splits": {"train": {"shards": [shard, shard]}}, "fields": {}}
    store.put(rank_piece_key("j", "out", 0, 0), orjson.dumps(record))
    sealers["n1"].begin(with_outputs("out"))
    sealed = done(sealers["n1"])
    assert sealed.makes and not sealed.versions and "the pieces of output out make no version" in sealed.failure


@pytest.mark.parametrize(
    ("data", "purpose", "owner", "wanted"),
    [
        ({}, None, None, ("ads", "research")),
        ({"purpose": "research"}, None, None, ("ads", "research")),
        ({"purpose": "research"}, "ads", "theirs", ("research",)),
        ({}, "ads", "theirs", ("ads",)),
    ],
)
def test_outputs_have_the_purposes_of_what_the_job_reads(
    store: MemoryObjectStore,
    sealers: dict[str, OutputSealer],
    tmp_path: Path,
    data: dict[str, str],
    purpose: str | None,
    owner: str | None,
    wanted: tuple[str, ...],
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n')
    publication = Publication(source_of(LocalRoot(tmp_path / "rows.jsonl")), SplitRule(), Terms(purposes=("research", "ads")))
    read = publication.publish(store, owner or "default").sha256()
    reference = DataReference(dataset=f"rows@sha256:{read}", owner=owner, **data)
    allocation = with_outputs("out")
    spec = allocation.spec.model_copy(update={"data": reference, "purpose": purpose})
    write(store)
    sealers["n1"].begin(allocation.model_copy(update={"spec": spec}))
    [version] = done(sealers["n1"]).versions
    assert version.purposes == wanted == read_manifest(store, "default", version.sha256).purposes


def test_outputs_of_a_job_whose_version_is_gone_are_none(store: MemoryObjectStore, sealers: dict[str, OutputSealer]) -> None:
    write(store)
    allocation = with_outputs("out")
    spec = allocation.spec.model_copy(update={"data": DataReference(dataset=f"rows@sha256:{'a' * 64}")})
    sealers["n1"].begin(allocation.model_copy(update={"spec": spec}))
    assert "what the outputs may be used for follows from rows@sha256:" in done(sealers["n1"]).failure


def test_a_report_of_many_outputs_with_many_fields_fits_its_topic(store: MemoryObjectStore, sealers: dict[str, OutputSealer]) -> None:
    names = tuple(f"out-{n}" for n in range(16))
    for name in names:
        with Output(JobOutputStore(store, "j", name, 0, 0), 0) as output:
            output.add({"json": {f"column-{n:03d}-{'x' * 60}": n for n in range(480)}})
    allocation = with_outputs(*names)
    sealers["n1"].begin(allocation)
    node = drained((0, 0), allocation)
    node.give(done(sealers["n1"]))
    [report] = node.of(OutputsSealed)
    assert len(report.versions) == 16 and len(report.model_dump_json()) < 512 * 1024
    assert report.versions[0].fields and not report.versions[-1].fields


def test_a_store_that_is_away_is_asked_again(store: MemoryObjectStore, tmp_path: Path) -> None:
    write(store)
    tries = []

    def make() -> MemoryObjectStore:
        tries.append(1)
        if len(tries) < 3:
            raise ObjectStoreUnavailableError("away")
        return store

    sealer = OutputSealer("n1", make)
    sealer.begin(with_outputs("out"))
    assert done(sealer).versions and len(tries) == 3
    sealer.close()


def test_an_attempt_that_left_its_phase_is_forgotten(store: MemoryObjectStore, sealers: dict[str, OutputSealer]) -> None:
    sealers["n1"].begin(with_outputs("out"))
    sealers["n1"].keep(set())
    assert not list(sealers["n1"].look(0))
