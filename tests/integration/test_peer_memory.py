"""Checkpoints in other nodes' memory: real holder processes, real upload processes; whatever becomes of a holder, the store has it all."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fakes.folder_store import FolderObjectStore
from tests.support.peer_holders import DeskPeers, holding
from tests.support.waiting import until
from trainhouse.checkpointing.chain.chunks import chunks_prefix
from trainhouse.checkpointing.chain.commits import read_entry
from trainhouse.checkpointing.chain.manifest import Chunk, Held, Manifest
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.lease.access_rule import Lease
from trainhouse.checkpointing.peer_memory.channel import Channel
from trainhouse.checkpointing.peer_memory.holder_choice import Place
from trainhouse.checkpointing.peer_memory.holder_client import ChunkCopier, PeerReads, Source, TimeLimits
from trainhouse.checkpointing.peer_memory.holder_records import HolderRecords
from trainhouse.checkpointing.peer_memory.holder_server import MAX_CONNECTIONS, MAX_UNKNOWN_OF_ADDRESS
from trainhouse.checkpointing.peer_memory.peers import Grant, Peers
from trainhouse.checkpointing.results import RestoreReport
from trainhouse.checkpointing.uploading import upload_helper
from trainhouse.checkpointing.uploading.upload_helper import HOLDER_LOST, UploadHelper
from trainhouse.workers.agent.peer_memory import holder_keeper
from trainhouse.workers.agent.peer_memory.holder_desk import HolderDesk
from trainhouse.workers.agent.peer_memory.holder_keeper import HolderKeeper, HolderSettings

OWN = Place("node-a", "r1")
NESTED = struct.pack(">I", 4096) + b"[" * 4096
SURROGATE = b"\x00\x00\x00\x13" + rb'{"token": "\ud800"}'
SHORT = TimeLimits(connect_s=1.0, answer_s=0.2)


@dataclass(frozen=True)
class Job:
    """One job of a test. The process that uploads is all tests' own: to start one takes seconds."""

    store: FolderObjectStore
    helper: UploadHelper
    name: str
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def attempt(self, peers: Peers | None, epoch: int) -> Checkpointer:
        settings = CheckpointerSettings(self.name, epoch, epoch - 1, "spec")
        return Checkpointer(settings, self.store, helper=self.helper, peers=peers, on_event=self._on_event)

    def _on_event(self, name: str, fields: dict[str, Any]) -> None:
        self.events.append((name, fields))

    def peers(self, epoch: int, own: Place = OWN) -> DeskPeers:
        return DeskPeers(self.store, own, Lease(self.name, epoch))

    def manifest(self, commit: int) -> Manifest:
        entry = read_entry(self.store, self.name, commit)
        assert isinstance(entry, Manifest)
        return entry

    def saved(self, peers: Peers | None, value: float = 1.0, epoch: int = 1) -> Manifest:
        """Saves once, and returns its manifest."""
        return self.manifest(self.attempt(peers, epoch).save(state(value), {}, 10, 1.0).commit)

    def restored(self, peers: Peers | None, value: float = 1.0, epoch: int = 2) -> RestoreReport:
        """Restores the newest checkpoint, which must be this one."""
        found = state(-1.0)
        report = self.attempt(peers, epoch).restore(found, lambda own: None)
        assert report.step == 10
        for name, tensor in state(value).items():
            assert torch.equal(found[name], tensor), name
        return report

    def forget_chunks(self) -> None:
        """Removes the chunks from the store, so that they can come from memory alone."""
        for stat in list(self.store.list(chunks_prefix(self.name))):
            self.store.delete(stat.key)


@pytest.fixture(scope="module")
def uploads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FolderObjectStore, UploadHelper]]:
    store = FolderObjectStore(tmp_path_factory.mktemp("store"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # the process that uploads knows the tests' store
        helper = UploadHelper(store)
    yield store, helper
    helper.close()


@pytest.fixture
def job(uploads: tuple[FolderObjectStore, UploadHelper], request: pytest.FixtureRequest) -> Job:
    return Job(*uploads, request.node.name.replace("_", "-")[:60])


@pytest.fixture
def store(job: Job) -> FolderObjectStore:
    return job.store


def state(value: float) -> dict[str, Any]:
    return {"a": torch.full((300, 300), value), "b": torch.arange(200_000.0)}


def test_an_agent_with_many_files_open_starts_a_holder(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, limits[1]))
        for _ in range(1100):
            files.enter_context(open(os.devnull))
        with holding(FolderObjectStore(tmp_path), "far"):
            pass


def test_a_restore_reads_from_the_memory_that_the_manifest_names(job: Job, store: FolderObjectStore) -> None:
    with holding(store, "node-b", "r2"), holding(store, "node-c", "r1"):
        manifest = job.saved(job.peers(1))
        assert manifest.held == (Held(node_id="node-b", first=0, count=len(manifest.chunks)),), "in another rack"
        assert [fields["memory_nodes"] for name, fields in job.events if name == "CheckpointCompleted"] == [["node-b"]]
        job.forget_chunks()
        report = job.restored(job.peers(2, Place("node-d")))
    assert report.peer_bytes == {"node-b": manifest.bytes_total} and report.peer_failures == ()


def test_the_newest_save_is_held_and_chunks_that_did_not_change_are_not_sent_again(job: Job, store: FolderObjectStore) -> None:
    with holding(store, "node-b", budget_bytes=2_000_000):
        at = job.attempt(job.peers(1), 1)
        for value in range(5):
            last = job.manifest(at.save(state(float(value)), {}, 10, 1.0).commit)
            assert last.held == (Held(node_id="node-b", first=0, count=len(last.chunks)),)
        job.forget_chunks()
        job.restored(job.peers(2), 4.0)


def test_a_job_that_wants_no_copies_has_none(job: Job, store: FolderObjectStore) -> None:
    with holding(store, "node-b"):
        assert job.saved(None).held == ()
        assert b"held" not in store.get(f"jobs/{job.name}/commits/0000000001"), "as before"
        assert job.restored(None).peer_bytes == {}


def test_where_no_other_node_offers_memory_a_save_reports_nothing(
    job: Job, store: FolderObjectStore, capfd: pytest.CaptureFixture[str]
) -> None:
    with holding(store, OWN.node_id):
        job.saved(job.peers(1))
    assert "memory" not in capfd.readouterr().err
    job.restored(job.peers(2))


def test_a_holder_that_was_lost_without_another_is_reported_once(
    job: Job, store: FolderObjectStore, capfd: pytest.CaptureFixture[str]
) -> None:
    with holding(store, "node-b"):
        peers = Fixed(job.peers(1).holder())
        at = job.attempt(peers, 1)
        at.save(state(0.0), {}, 10, 1.0)
    assert "memory" not in capfd.readouterr().err
    peers.grant = None
    for value in (1.0, 2.0):
        at.save(state(value), {}, 10, 1.0)
    assert capfd.readouterr().err.count(HOLDER_LOST) == 1
    job.restored(job.peers(2), 2.0)


@pytest.mark.parametrize("holder", ["node-b", OWN.node_id])
def test_uploads_by_training_itself_report_once_that_they_make_no_copies_where_there_is_a_holder(
    job: Job, store: FolderObjectStore, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    monkeypatch.setattr(upload_helper, "FUTILE_STARTS", 0)
    with holding(store, holder):
        at = job.attempt(job.peers(1), 1)
        saved = [at.save(state(value), {}, 10, 1.0).commit for value in (1.0, 2.0)]
        assert [job.manifest(commit).held for commit in saved] == [(), ()]
    # Other threads of this process may write there too, in the middle of a line even: what is counted is the sentence.
    printed = capfd.readouterr().err
    assert printed.count("training's own process uploads them from now on") == 1
    assert printed.count("uploads them from now on, and copies nothing into other nodes' memory") == (holder == "node-b")


def test_a_holder_without_room_refuses_and_the_save_goes_on(job: Job, store: FolderObjectStore, capfd: pytest.CaptureFixture[str]) -> None:
    with holding(store, "node-b", budget_bytes=500_000):
        manifest = job.saved(job.peers(1))
        assert sum(held.count for held in manifest.held) < len(manifest.chunks)
        assert "no room for" in (said := capfd.readouterr().err) and "TRAINHOUSE_AGENT_PEER_MEMORY_GIB" in said
        job.restored(job.peers(2))


def test_a_holder_that_was_killed_costs_its_memory_alone(job: Job, store: FolderObjectStore) -> None:
    with holding(store, "node-b") as keeper:
        manifest = job.saved(job.peers(1))
        assert manifest.held
        peers = job.peers(2)
        before = peers.reach("node-b")
        assert isinstance(before, Grant)
        assert keeper.pid is not None
        os.kill(keeper.pid, signal.SIGKILL)
        report = job.restored(Fixed(before))
        assert report.peer_bytes == {} and "memory of node-b" in report.peer_failures[0]
        until(lambda: other_start(job.peers(2), before), "another holder", every_s=0.05)
        report = job.restored(job.peers(3), epoch=3)
        assert report.peer_bytes == {}, "its memory is gone"
        assert job.saved(job.peers(4), 2.0, 4).held, "the next save has a holder again"


def other_start(peers: DeskPeers, before: Grant) -> bool:
    found = peers.reach("node-b")
    return isinstance(found, Grant) and found.token.partition(".")[2] != before.token.partition(".")[2] and found.port != before.port


class Fixed:
    """Access that stays as it is."""

    def __init__(self, grant: Grant | str | None) -> None:
        self.grant = grant

    def holder(self) -> Grant | str | None:
        return self.grant

    def reach(self, node_id: str) -> Grant | str:
        assert self.grant is not None
        return self.grant


def test_a_wrong_token_is_refused_and_save_and_restore_go_on(job: Job, store: FolderObjectStore, capfd: pytest.CaptureFixture[str]) -> None:
    with holding(store, "node-b"):
        right = job.peers(1).holder()
        assert isinstance(right, Grant)
        wrong = Fixed(replace(right, token=right.token[:-1] + ("0" if right.token[-1] != "0" else "1")))
        assert job.saved(wrong).held == ()
        assert "the token is not one for this holder" in capfd.readouterr().err
        job.saved(job.peers(2), epoch=2)
        report = job.restored(wrong, epoch=3)
    assert report.peer_bytes == {} and "the token is not one for this holder" in report.peer_failures[0]


def fetched(reads: PeerReads, chunk: Chunk) -> bytearray | None:
    """A chunk from a node's memory; None where it must come from the store."""
    room = bytearray(chunk.size_bytes)
    return room if reads.fetch_into(chunk, memoryview(room)) else None


def test_a_token_is_of_one_job_and_for_reading_where_it_is_for_that(job: Job, store: FolderObjectStore) -> None:
    with holding(store, "node-b"):
        manifest = job.saved(job.peers(1))
        other = PeerReads(DeskPeers(store, OWN, Lease("other", 1)), manifest)
        assert fetched(other, manifest.chunks[0]) is None
        assert f"the token of job other is not one for chunks of {job.name}" in other.tally.failures[0]
        child = DeskPeers(store, OWN, Lease("child", 1, resumes=job.name))
        assert fetched(PeerReads(child, manifest), manifest.chunks[0]) is not None, "of the job that it resumes from"
        reading = child.reach("node-b")
        assert isinstance(reading, Grant)
        assert "for reading alone" in ChunkCopier(reading, Source(0, 1)).finish().why
        newer = job.peers(2).holder()
        older = job.peers(1).holder()
        assert isinstance(newer, Grant) and isinstance(older, Grant)
        assert ChunkCopier(newer, Source(0, 1)).finish().why == ""
        assert "this attempt, of epoch 1, must end" in ChunkCopier(older, Source(0, 1)).finish().why


def test_what_is_damaged_in_memory_comes_from_the_store(job: Job, store: FolderObjectStore) -> None:
    with holding(store, "node-b"):
        first = job.saved(None)
        largest = max(first.chunks, key=lambda chunk: chunk.size_bytes)
        grant = job.peers(1).holder()
        assert isinstance(grant, Grant)
        liar = ChunkCopier(grant, Source(7, 1))
        liar.offer(largest, b"\xff" * largest.size_bytes)  # not what the hash says: NaN, if it were used
        assert liar.finish().hashes == {largest.sha256}
        manifest = job.saved(job.peers(2), epoch=2)
        assert manifest.held, "the holder takes itself for one that has it"
        report = job.restored(job.peers(3), epoch=3)
    assert "that memory is not to be trusted" in report.peer_failures[0]


def test_a_replica_of_an_older_save_is_never_taken_for_the_newest(job: Job, store: FolderObjectStore) -> None:
    with holding(store, "node-b"):
        older = job.saved(job.peers(1), 1.0)
        newest = job.saved(None, 2.0, 2)
        assert older.held and not newest.held
        report = job.restored(job.peers(3), 2.0, 3)
        assert report.peer_bytes == {}
        # A manifest that names the holder, of which that has one chunk alone.
        reads = PeerReads(job.peers(3), newest.model_copy(update={"held": (Held(node_id="node-b", first=0, count=99),)}))
        there = {chunk.sha256 for chunk in older.chunks}
        for chunk in newest.chunks:
            body = fetched(reads, chunk)
            assert (body is not None) == (chunk.sha256 in there)
            assert body is None or sha256(body).hexdigest() == chunk.sha256
        assert reads.tally.failures == []


def test_a_holder_that_never_answers_has_a_time_limit(job: Job, store: FolderObjectStore) -> None:
    manifest = job.saved(None)
    named = manifest.model_copy(update={"held": (Held(node_id="node-b", first=0, count=len(manifest.chunks)),)})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        grant = Grant("node-b", "127.0.0.1", silent.getsockname()[1], "token")
        reads = PeerReads(Fixed(grant), named, SHORT)
        assert [fetched(reads, chunk) for chunk in named.chunks] == [None] * len(named.chunks)
        assert reads.tally.failures == ["memory of node-b: no answer in time"], "it is asked once"
        copier = ChunkCopier(grant, Source(0, 1), SHORT)
        copier.offer(Chunk(sha256=sha256(b"x").hexdigest(), size_bytes=1), b"x")
        assert copier.finish().why == "memory of node-b: no answer in time"
    reads = PeerReads(Fixed(grant), named, SHORT)
    assert fetched(reads, named.chunks[0]) is None
    assert f"no connection to 127.0.0.1:{grant.port}" in reads.tally.failures[0]


def test_a_stopped_holder_does_not_hold_up_a_save(job: Job, store: FolderObjectStore) -> None:
    with holding(store, "node-b") as keeper:
        grant = job.peers(1).holder()
        assert isinstance(grant, Grant) and keeper.pid is not None
        os.kill(keeper.pid, signal.SIGSTOP)
        try:
            copier = ChunkCopier(grant, Source(0, 1), SHORT)
            copier.offer(Chunk(sha256=sha256(b"x").hexdigest(), size_bytes=1), b"x")
            assert copier.finish().why == "memory of node-b: no answer in time"
        finally:
            os.kill(keeper.pid, signal.SIGCONT)


@contextmanager
def slow_link(port: int, delay_s: float) -> Iterator[int]:
    """A port that leads to a holder's, over a link on which every frame towards the rank is late."""

    def pump(source: socket.socket, target: socket.socket, late_s: float) -> None:
        with suppress(OSError):
            while content := source.recv(2**16):
                ended.wait(late_s)
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as links:

        def accept() -> None:
            with suppress(OSError):
                rank = links.enter_context(listener.accept()[0])
                holder = links.enter_context(socket.create_connection(("127.0.0.1", port), 10))
                threading.Thread(target=pump, args=(rank, holder, 0.0), daemon=True).start()
                threading.Thread(target=pump, args=(holder, rank, delay_s), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        ended.set()


def test_a_holder_that_crawls_holds_up_a_commit_for_one_limit_alone(job: Job, store: FolderObjectStore) -> None:
    limits = TimeLimits(answer_s=3.0)
    with holding(store, "node-b"):
        grant = job.peers(1).holder()
        assert isinstance(grant, Grant)
        with slow_link(grant.port, 0.5) as port:
            copier = ChunkCopier(replace(grant, port=port), Source(0, 1), limits)
            for number in range(40):
                body = number.to_bytes(4, "big")
                copier.offer(Chunk(sha256=sha256(body).hexdigest(), size_bytes=4), body)
            copied = copier.finish()
    assert 0 < len(copied.hashes) < 40
    assert copied.why == "memory of node-b: no answer in time"


def speak_to_the_end(grant: Grant, content: bytes) -> None:
    """Sends content and waits until the holder has ended the connection.

    It may do so before it has read all of it: then it resets the connection, which each of these calls can raise.
    """
    with socket.create_connection((grant.address, grant.port), 10) as channel:
        try:
            channel.sendall(content)
            channel.shutdown(socket.SHUT_WR)
            while channel.recv(4096):
                pass
        except TimeoutError:
            raise
        except OSError as error:
            assert error.errno in (errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE), error


def test_nonsense_ends_a_connection_and_nothing_else(job: Job, store: FolderObjectStore, capfd: pytest.CaptureFixture[str]) -> None:
    with holding(store, "node-b"):
        grant = job.peers(1).holder()
        assert isinstance(grant, Grant)
        for content in (
            b"",
            b"\xff\xff\xff\xff",
            b"\x00\x00\x00\x02[]",
            b"\x00\x00\x00\x02{}",
            b"GET / HTTP/1.1\r\n\r\n",
            NESTED,
            SURROGATE,
        ):
            speak_to_the_end(grant, content)
        assert job.saved(job.peers(1)).held
    assert "Traceback" not in capfd.readouterr().err


def test_a_holder_without_files_for_more_connections_serves_again_later(job: Job, store: FolderObjectStore) -> None:
    with holding(store, "node-b") as keeper, ExitStack() as strangers:
        grant = job.peers(1).holder()
        assert isinstance(grant, Grant) and keeper.pid is not None
        resource.prlimit(keeper.pid, resource.RLIMIT_NOFILE, (24, 24))
        for _ in range(40):
            strangers.enter_context(socket.create_connection((grant.address, grant.port), 10))
        files = Path(f"/proc/{keeper.pid}/fd")
        until(lambda: len(list(files.iterdir())) >= 24, "a holder at its limit of files", every_s=0.02)
        strangers.close()
        until(lambda: ChunkCopier(grant, Source(0, 1)).finish().why == "", "a connection to the holder", every_s=0.1)


def test_a_job_takes_no_more_connections_than_it_leaves_to_others(store: FolderObjectStore) -> None:
    def connect(token: str) -> str:
        """Returns why it was refused, nothing if it was not; stays open."""
        channel = Channel(links.enter_context(socket.create_connection((grant.address, grant.port), 10)))
        channel.allow(10.0)
        channel.send({"token": token} if token else {})
        return str(channel.header().get("refused", ""))

    with holding(store, "node-b"), ExitStack() as links:
        grant = DeskPeers(store, OWN, Lease("greedy", 1)).holder()
        assert isinstance(grant, Grant)
        refusals = [connect(grant.token) for _ in range(MAX_CONNECTIONS // 2 + 1)]
        assert set(refusals[:-1]) == {""}
        assert "job greedy has 512 connections here, and 511 of 1024 are left for others" in refusals[-1]
        other = DeskPeers(store, OWN, Lease("other", 1)).holder()
        assert isinstance(other, Grant)
        assert connect(other.token) == ""


def test_connections_of_an_address_without_a_token_have_a_bound(store: FolderObjectStore) -> None:
    with holding(store, "node-b"), ExitStack() as links:
        grant = DeskPeers(store, OWN, Lease("job", 1)).holder()
        assert isinstance(grant, Grant)
        for _ in range(MAX_UNKNOWN_OF_ADDRESS):
            links.enter_context(socket.create_connection((grant.address, grant.port), 10))
        why = ChunkCopier(grant, Source(0, 1)).finish().why
        assert "128 connections of 127.0.0.1 have sent no token yet" in why
        links.close()
        until(lambda: ChunkCopier(grant, Source(0, 1)).finish().why == "", "a connection to the holder", every_s=0.05)


def test_a_reader_that_crawls_takes_the_memory_of_its_chunk_until_it_ends(job: Job, store: FolderObjectStore) -> None:
    body = bytes(32 * 2**20)
    chunk = Chunk(sha256=sha256(body).hexdigest(), size_bytes=len(body))
    with holding(store, "node-b", budget_bytes=len(body) + 1), ExitStack() as links:
        grant = job.peers(1).holder()
        assert isinstance(grant, Grant)

        def copied(save: int, chunk: Chunk, body: bytes) -> str:
            copier = ChunkCopier(grant, Source(0, save))
            copier.offer(chunk, body)
            return copier.finish().why

        assert copied(1, chunk, body) == ""
        reader = Channel(links.enter_context(socket.create_connection((grant.address, grant.port), 10)))
        reader.allow(60.0)
        for header in ({"token": grant.token}, {"op": "get", "job": job.name, "sha256": chunk.sha256}):
            reader.send(header)
            answer = reader.header()
        assert answer == {"size_bytes": len(body)}, "and the bytes wait on their way"
        assert f"{len(body)} bytes that are still read" in copied(2, Chunk(sha256=sha256(b"xx").hexdigest(), size_bytes=2), b"xx")
        links.close()
        until(lambda: copied(3, chunk, body) == "", "room for a chunk", every_s=0.05)


def test_a_desk_reports_a_store_that_is_away(job: Job, store: FolderObjectStore) -> None:
    class Away(FolderObjectStore):
        def list(self, prefix: str, start_after: str = "") -> Any:
            from trainhouse.checkpointing.errors import ObjectStoreUnavailableError

            raise ObjectStoreUnavailableError("the store is away")

    desk = HolderDesk(OWN, HolderRecords(Away(Path(store.address)), "pool"))
    assert desk.access(Lease("job", 1), "") == {"why": "where holders are cannot be read: the store is away"}


def test_a_holder_outlives_any_error_of_its_record(store: FolderObjectStore) -> None:
    class Broken(FolderObjectStore):
        failures = 0

        def put(self, key: str, body: Any, *args: Any, **kwargs: Any) -> Any:
            if not Broken.failures:
                Broken.failures = 1
                raise RuntimeError("no error of a store")
            return super().put(key, body, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder_keeper, "AGAIN_S", 0.05)
        with holding(Broken(Path(store.address)), "node-b"):
            assert Broken.failures == 1


def test_a_holder_that_could_not_be_started_for_any_reason_is_started_again(store: FolderObjectStore) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder_keeper, "PAUSE_S", 0.05)
        patch.setattr(holder_keeper, "COMMAND", (sys.executable, "-c", "print([])"))
        keeper = HolderKeeper(Place("node-b"), HolderRecords(store, "pool"), HolderSettings("127.0.0.1", 0, 1))
        keeper.start()
        try:
            pids = {until(lambda: keeper.pid, "a process")}
            until(lambda: keeper.pid is not None and keeper.pid not in pids, "another process", every_s=0.01)
        finally:
            keeper.close()


def test_a_holder_ends_with_its_agent(job: Job, store: FolderObjectStore) -> None:
    keeper: HolderKeeper
    with holding(store, "node-b") as keeper:
        pid = keeper.pid
        assert pid is not None
    assert not Path(f"/proc/{pid}").exists()
    assert job.peers(1).holder() is None
