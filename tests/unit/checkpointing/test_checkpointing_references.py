"""What something refers to stays whole, whatever happens in whatever order; all else goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.manifests import bare_manifest
from tests.support.profiles import examples
from trainhouse.checkpointing.chain.chunks import ChunkStore, chunk_key, prefix_of
from trainhouse.checkpointing.chain.commits import CommitChain, Writer, commit_key, head, read_entry, tombstone
from trainhouse.checkpointing.chain.manifest import LOSS, Deletion, Manifest, Pruned, encode
from trainhouse.checkpointing.chain.references import (
    USED_BY,
    ReferenceReader,
    References,
    given_up,
    references,
    tag,
    tagged,
    untag,
    used_by_key,
)
from trainhouse.checkpointing.chain.restore_candidates import Candidates
from trainhouse.checkpointing.chain.retention import Pruner, RetentionPolicy, delete, sweep
from trainhouse.checkpointing.errors import HeldError, InvalidStateError, NoCheckpointError, ObjectStoreRefusedError
from trainhouse.checkpointing.stores.object_store import Body, ObjectStat
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId
from trainhouse.events.model.resume_ref import ResumeFrom

GRACE_S = 3600.0
BY = Deletion(user="ada", at_ms=1)
POLICY = RetentionPolicy(keep_last=1, keep_best=1)
JOBS = ("a", "b")
CHILDREN = ("b", "c", "d")
Action = tuple[Any, ...]


class Killed(BaseException):
    """The end of a process between two calls of the store."""


class Clock:
    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


class WatchedStore(MemoryObjectStore):
    """Does something before some of its next calls."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._called_times = 0
        self._before: dict[int, Callable[[], None]] = {}

    def before_calls(self, does: dict[int, Callable[[], None]]) -> None:
        self._called_times, self._before = 0, does

    def _called(self) -> None:
        if not self._before:
            return
        now = self._before.pop(self._called_times, None)
        self._called_times += 1
        if now is not None:
            rest, self._before = self._before, {}
            now()
            self._before = rest

    def put(self, key: str, body: Body) -> None:
        self._called()
        super().put(key, body)

    def put_if_absent(self, key: str, body: Body) -> bool:
        self._called()
        return super().put_if_absent(key, body)

    def get(self, key: str) -> bytes:
        self._called()
        return super().get(key)

    def stat(self, key: str) -> ObjectStat | None:
        self._called()
        return super().stat(key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        self._called()
        return super().list(prefix, start_after)

    def delete(self, key: str) -> None:
        self._called()
        super().delete(key)


class Trainer:
    """One attempt of a job, with a chain, chunks and retention as a checkpointer has them, and without torch."""

    def __init__(self, objects: MemoryObjectStore, job_id: str, epoch: int, restore_at_most: int | None = None) -> None:
        self.job_id = job_id
        self._writer = Writer(JobId(job_id), Epoch(epoch), AttemptNumber(epoch), f"{job_id}/{epoch}")
        self._chain = CommitChain(objects, self._writer)
        self._chunks = ChunkStore(objects, job_id, GRACE_S, threads=1)
        self.pruner = Pruner(objects, job_id)
        self._named: frozenset[str] = frozenset()
        self._chain.claim(0.0, restore_at_most)

    def save(self, value: int) -> None:
        sent = self._chunks.send([b"state %d" % value, b"own"], self._named)

        def build(commit: int) -> Manifest:
            return bare_manifest(self._writer, commit, {LOSS: float(value)}, [s.chunk for s in sent])

        manifest, _ = self._chain.append(build)
        self._named = frozenset(c.sha256 for c in manifest.chunks)


class World:
    """A store with jobs that save, prune, begin from each other, are tagged, deleted and swept; remembers what must be there."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.objects = WatchedStore(self.clock)
        self._epochs = 0
        self.trainers = {job: self._attempt(job) for job in JOBS}
        # Of references whose last change was finished: the commit.
        self.held: dict[tuple[str, str], int] = {}
        for value in (3, 1, 2):
            self.save("a", value)

    def _attempt(self, job: str, restore_at_most: int | None = None) -> Trainer:
        self._epochs += 1
        return Trainer(self.objects, job, self._epochs, restore_at_most)

    def act(self, action: Action, meanwhile: dict[int, Action | Literal["kill"]]) -> None:
        """Does one thing; before some of its calls of the store it is killed, or another process does something else."""

        def interrupt(by: Action | Literal["kill"]) -> None:
            if by == "kill":
                raise Killed
            self._do(self._picked(by))
            if reference_of(by) == reference_of(action):
                unclear.append(reference_of(action))

        unclear: list[tuple[str, str]] = []
        action = self._picked(action)
        self.objects.before_calls({at: partial(interrupt, by) for at, by in meanwhile.items()})
        try:
            self._do(action)
        except Killed:
            unclear.append(reference_of(action))
            if action[0] in ("save", "prune"):
                self.objects.before_calls({})
                self.trainers[action[1]] = self._attempt(action[1])
        self.objects.before_calls({})
        for reference in unclear:
            self.held.pop(reference, None)

    def _do(self, action: Action) -> None:
        kind, *arguments = action
        try:
            getattr(self, kind)(*arguments)
        except (NoCheckpointError, HeldError):
            pass

    def save(self, job: str, value: int) -> None:
        self.trainers[job].save(value)

    def prune(self, job: str) -> None:
        self.trainers[job].pruner.prune(POLICY)

    def _picked(self, action: Action) -> Action:
        """The action with the commit that it is about, of those that are there now."""
        kind, *arguments = action
        if kind in ("tag", "begin", "delete"):
            *others, which = arguments
            job = others[1] if kind == "begin" else others[0]
            live = [n for n in range(head(self.objects, job) + 1) if isinstance(read_entry(self.objects, job, n), Manifest)]
            commit = None if which is None else live[which % len(live)] if live else 0
            again = self.held.get((job, f"{USED_BY}{others[0]}")) if which == 0 and kind == "begin" else None
            return (kind, *others, commit if again is None else again)
        return action

    def tag(self, job: str, name: str, commit: int) -> None:
        tag(self.objects, job, name, commit)
        self.held[job, name] = commit

    def untag(self, job: str, name: str) -> None:
        self.held.pop((job, name), None)
        untag(self.objects, job, name)

    def begin(self, child: str, job: str, commit: int | None) -> None:
        key = (job, f"{USED_BY}{child}")
        must = commit is not None and self.held.get(key) == commit and child not in JOBS
        try:
            chosen = Candidates(self.objects, child, ResumeFrom(JobId(job), commit)).next()
        except NoCheckpointError:
            assert not must, f"{child} cannot begin from {job}@{commit} again"
            raise
        if chosen is not None and chosen.job_id == job:
            self.held[key] = chosen.commit

    def delete(self, job: str, commit: int) -> None:
        delete(self.objects, job, commit, ended=False, by=BY)

    def sweep(self) -> None:
        sweep(self.objects, GRACE_S)

    def wait(self, hours: float) -> None:
        self.clock.now_s += hours * 3600

    def check(self, live: bool = False) -> None:
        """Asserts that every referenced commit can be restored whole."""
        for (job, name), commit in self.held.items():
            entry = read_entry(self.objects, job, commit)
            manifest = entry if isinstance(entry, Manifest) or live else given_up(entry)
            assert isinstance(manifest, Manifest), f"{name} of {job}@{commit} finds {entry}"
            missing = [c for c in manifest.chunks if self.objects.stat(chunk_key(c.sha256, prefix_of(manifest))) is None]
            assert not missing, f"{name} of {job}@{commit}: chunks are gone"

    def settle(self) -> None:
        """Lets retention come to its end."""
        self.sweep()
        self.check(live=True)
        for job in JOBS:
            self.trainers[job] = self._attempt(job)
            self.prune(job)
        self.wait(2)
        self.sweep()

    def check_nothing_else_is_left(self) -> None:
        named = set()
        for found in self.objects.list("jobs/"):
            if "/commits/" not in found.key:
                continue
            entry = read_entry(self.objects, found.key.split("/")[1], int(found.key.rpartition("/")[2]))
            assert given_up(entry) is None
            if isinstance(entry, Manifest):
                named |= {chunk_key(c.sha256, prefix_of(entry)) for c in entry.chunks}
        assert {found.key for found in self.objects.list("jobs/") if "/chunks/" in found.key} == named
        assert all(not self.trainers[job].pruner.prune(POLICY).commits for job in JOBS)


def reference_of(action: Action) -> tuple[str, str]:
    """The reference that an action changes."""
    kind, *arguments = action
    if kind in ("tag", "untag"):
        return arguments[0], arguments[1]
    return (arguments[1], f"{USED_BY}{arguments[0]}") if kind == "begin" else ("", kind)


JOB = st.sampled_from(("a", "a", "a", "b"))
# Of the live commits, counted from the oldest.
WHICH = st.integers(0, 2)
TAG = st.tuples(st.just("tag"), JOB, st.sampled_from(["x", "y"]), WHICH)
UNTAG = st.tuples(st.just("untag"), JOB, st.sampled_from(["x", "y"]))
BEGIN = st.tuples(st.just("begin"), st.sampled_from(CHILDREN), st.just("a"), st.none() | WHICH)
DELETE = st.tuples(st.just("delete"), JOB, WHICH)
SWEEP = st.tuples(st.just("sweep"))
SAVE = st.tuples(st.just("save"), JOB, st.integers(0, 5))
PRUNE = st.tuples(st.just("prune"), JOB)
WAIT = st.tuples(st.just("wait"), st.sampled_from([0.6, 1.1, 3.0]))
CALL = st.integers(0, 11)


@st.composite
def steps(draw: DrawFn) -> tuple[Action, dict[int, Any]]:
    """An action, and what comes between its calls."""
    action = draw(st.one_of(SAVE, SAVE, PRUNE, PRUNE, TAG, UNTAG, BEGIN, BEGIN, DELETE, SWEEP, SWEEP, WAIT))
    # A process that saves or prunes does one thing at a time.
    others = (TAG, BEGIN, SWEEP, DELETE, UNTAG) if action[0] in ("save", "prune") else (PRUNE, SAVE, TAG, SWEEP, DELETE)
    return action, draw(st.dictionaries(CALL, st.one_of(st.just("kill"), *others), max_size=4))


def test_tags_keep_and_move() -> None:
    world = World()
    for commit in (1, 2):
        tag(world.objects, "a", "release", commit)
    tag(world.objects, "a", "paper", 1)
    world.prune("a")
    assert references(world.objects, "a").by_commit == {1: ("paper",), 2: ("release",)}
    assert isinstance(read_entry(world.objects, "a", 1), Manifest)
    assert untag(world.objects, "a", "paper") == 1 and untag(world.objects, "a", "paper") is None
    assert references(world.objects, "a").of(1) == () and references(world.objects, "b") == References({})


@pytest.mark.parametrize("name", ["", "-x", "a/b", "a b", f"{USED_BY}c", "x" * 65, "ü"])
def test_a_tag_with_another_spelling_is_refused(name: str) -> None:
    with pytest.raises(InvalidStateError, match="letters, digits"):
        tag(World().objects, "a", name, 1)


@pytest.mark.parametrize("commit", [0, 9])
def test_a_tag_of_no_checkpoint_is_refused_and_the_old_one_stays(commit: int) -> None:
    world = World()
    tag(world.objects, "a", "x", 1)
    with pytest.raises(NoCheckpointError, match=f"a@{commit}"):
        tag(world.objects, "a", "x", commit)
    assert references(world.objects, "a").of(1) == ("x",)


def test_a_tag_that_retention_meets_in_the_same_instant_is_kept() -> None:
    """Retention has looked at the references, and the one who tags at the checkpoint; each acts on what it saw."""
    for call in range(12):
        world = World()
        world.save("a", 4)
        world.act(("prune", "a"), {call: ("tag", "a", "x", 0)})
        world.check(live=True)
        world = World()
        world.save("a", 4)
        world.act(("tag", "a", "x", 0), {call: ("prune", "a")})
        world.check(live=True)


@pytest.mark.parametrize("before", [None, 2])
def test_a_deletion_wins_over_a_tag_of_the_same_instant(before: int | None) -> None:
    """A list would show one that is put back as deleted for ever."""
    for call in range(6):
        world = World()
        if before is not None:
            tag(world.objects, "a", "x", before)
        deleted: list[Pruned] = []

        def remove(world: World = world, deleted: list[Pruned] = deleted) -> None:
            try:
                deleted.append(delete(world.objects, "a", 1, ended=True, by=BY))
            except HeldError:
                pass

        world.objects.before_calls({call: remove})
        try:
            tag(world.objects, "a", "x", 1)
            assert not deleted
        except NoCheckpointError:
            assert deleted and tagged(world.objects, "a", "x") == before
        world.objects.before_calls({})
        assert (1 in live(world)) != bool(deleted), call


def test_one_who_began_from_a_checkpoint_as_retention_was_killed_begins_from_it_again() -> None:
    world = World()
    world.save("a", 4)
    pruned = Pruner(world.objects, "a").prune(POLICY).commits
    assert pruned == (1, 3)
    for n in pruned:
        entry = read_entry(world.objects, "a", n)
        assert isinstance(entry, Pruned) and entry.manifest is not None
        world.objects.put(used_by_key("a", "c"), b'{"commit": %d}' % n)
        with pytest.raises(NoCheckpointError):
            Candidates(world.objects, "d", ResumeFrom(JobId("a"), n)).next()
        chosen = Candidates(world.objects, "c", ResumeFrom(JobId("a"), n)).next()
        assert chosen == entry.manifest
    world.wait(9)
    sweep(world.objects, GRACE_S)
    live = [n for n in pruned if isinstance(read_entry(world.objects, "a", n), Manifest)]
    assert live == [3], "the last that it began from is back, the others are gone"
    world.check_nothing_else_is_left()


@pytest.mark.parametrize(
    "content", [b"nothing", b"[" * 2000, *(b'{"commit":%s}' % n for n in (b"1e999", b"1e30", b'"9"', b"1.9", b"-5", b"true"))]
)
def test_an_unreadable_reference_keeps_all_of_its_job(content: bytes) -> None:
    world = World()
    world.objects.put(used_by_key("a", "c"), content)
    world.prune("a")
    world.wait(9)
    sweep(world.objects, GRACE_S)
    assert all(isinstance(read_entry(world.objects, "a", n), Manifest) for n in (1, 2, 3))
    with pytest.raises(HeldError, match="untag a used-by:c"):
        delete(world.objects, "a", 1, ended=True, by=BY)


@pytest.mark.parametrize("refused", ["get", "put"])
def test_where_its_reference_is_refused_a_job_begins_from_another_all_the_same_and_is_warned(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by an agent from before references: training goes on, and retention may give the checkpoint up."""
    world = World()
    world.save("a", 4)
    allowed = getattr(world.objects, refused)

    def judged(key: str, *body: Body) -> object:
        if key == used_by_key("a", "c"):
            raise ObjectStoreRefusedError(f"{refused} is not among the rights of job c")
        return allowed(key, *body)

    monkeypatch.setattr(world.objects, refused, judged)
    with pytest.warns(UserWarning, match=f"a@3 is not kept for as long as c needs it: {refused} is not among the rights of job c"):
        chosen = Candidates(world.objects, "c", ResumeFrom(JobId("a"), 3)).next()
    assert chosen is not None and chosen.commit == 3 and not references(world.objects, "a").by_commit
    assert 3 in Pruner(world.objects, "a").prune(POLICY).commits
    if refused == "get":
        with pytest.raises(NoCheckpointError):
            Candidates(world.objects, "c", ResumeFrom(JobId("a"), 3)).next()


class CountingStore(MemoryObjectStore):
    """Notes reads of references."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.read: list[str] = []

    def get(self, key: str) -> bytes:
        if "/tags/" in key:
            self.read.append(key)
        return super().get(key)


def test_a_reference_is_read_again_only_if_it_may_have_changed() -> None:
    clock = Clock()
    objects = CountingStore(clock)
    reader = ReferenceReader(objects, "a")
    for n in range(20):
        objects.put(used_by_key("a", f"c{n:02}"), b'{"commit":%d}' % n)
    young = reader.read()
    objects.put(used_by_key("a", "c00"), b'{"commit":40}')
    again = reader.read()
    assert young.of(0) and again.of(40) and not again.of(0) and len(objects.read) == 40, "written in one second of the store's clock"
    clock.now_s += 100
    first = reader.read()
    objects.read.clear()
    assert reader.read() == first == references(objects, "a") and len(objects.read) == 20
    objects.read.clear()
    objects.put(used_by_key("a", "c01"), b'{"commit":41}')
    objects.delete(used_by_key("a", "c02"))
    changed = reader.read()
    assert objects.read == [used_by_key("a", "c01")]
    assert changed.of(41) and not changed.of(1) and not changed.of(2) and changed.of(3)


def test_a_long_reference_is_unreadable_and_not_read() -> None:
    objects = CountingStore(Clock())
    objects.put(used_by_key("a", "c"), b'{"commit":1}' + b" " * 1012)
    objects.put(used_by_key("a", "d"), b'{"commit":1}' + b" " * 1013)
    found = references(objects, "a")
    assert found == References({1: (f"{USED_BY}c",)}, (f"{USED_BY}d",))
    assert found.rows == [{"commit": None, "name": f"{USED_BY}d"}, {"commit": 1, "name": f"{USED_BY}c"}]
    assert objects.read == [used_by_key("a", "c")]


def test_a_prune_reads_old_references_once() -> None:
    world = World()
    objects = CountingStore(world.clock)
    trainer = Trainer(objects, "a", 1)
    for value in range(4):
        trainer.save(value)
    for n in range(20):
        objects.put(used_by_key("a", f"c{n}"), b'{"commit":2}')
    world.wait(1)
    assert trainer.pruner.prune(POLICY).commits == (3,) and len(objects.read) == 20
    trainer.save(9)
    assert trainer.pruner.prune(POLICY).commits == (4,) and len(objects.read) == 20


def test_what_is_referred_to_is_not_deleted_nor_what_a_restart_begins_from() -> None:
    world = World()
    tag(world.objects, "a", "paper", 1)
    Candidates(world.objects, "c", ResumeFrom(JobId("a"), 1)).next()
    with pytest.raises(HeldError, match=r"a@1: kept by paper, used-by:c;.*untag a paper`; `trainhouse checkpoint untag a used-by:c"):
        delete(world.objects, "a", 1, ended=True, by=BY)
    with pytest.raises(HeldError, match="trainhouse cancel a"):
        delete(world.objects, "a", 3, ended=False, by=BY)
    assert delete(world.objects, "a", 3, ended=True, by=BY).commit == 3 and delete(world.objects, "a", 2, ended=True, by=BY).commit == 2
    for commit in (0, 7):
        with pytest.raises(NoCheckpointError):
            delete(world.objects, "a", commit, ended=True, by=BY)
    world.wait(2)
    assert sweep(world.objects, GRACE_S).chunks == 2
    world.check()


def test_a_deletion_that_was_cut_off_is_finished_by_the_same_command() -> None:
    world = World()
    first = delete(world.objects, "a", 2, ended=True, by=BY)
    assert (first.commit, first.step, first.deletion) == (2, 2, BY)
    again = delete(world.objects, "a", 2, ended=True, by=Deletion(user="bob", at_ms=2))
    assert again == first, "its event is the same one"
    world.wait(2)
    sweep(world.objects, GRACE_S)
    swept = delete(world.objects, "a", 2, ended=True, by=Deletion(user="bob", at_ms=3))
    assert swept.manifest is None and swept.deletion == BY
    # Killed right after its tombstone, which a job meanwhile needs: it is put back.
    delete(world.objects, "a", 1, ended=True, by=BY)
    world.objects.put(used_by_key("a", "c"), b'{"commit":1}')
    with pytest.raises(HeldError, match="a@1: kept by used-by:c"):
        delete(world.objects, "a", 1, ended=True, by=BY)
    assert isinstance(read_entry(world.objects, "a", 1), Manifest)
    assert Pruner(world.objects, "a").prune(RetentionPolicy(keep_last=9)).earlier == (), "what was deleted, retention does not report"


@pytest.mark.parametrize("ended", [False, True])
def test_a_deletion_that_was_cut_off_before_it_saw_a_claim_decides_as_one_that_was_not(ended: bool) -> None:
    world = World()
    for value in (4, 5):
        world.save("a", value)
    entry = read_entry(world.objects, "a", 3)
    assert isinstance(entry, Manifest)
    world.objects.put(commit_key("a", 3), encode(tombstone(entry, BY)))
    assert delete(world.objects, "a", 3, ended=False, by=BY).commit == 3, "two are newer"
    world._attempt("a", restore_at_most=3)
    if ended:
        assert delete(world.objects, "a", 3, ended=True, by=BY).commit == 3 and live(world) == [1, 2, 4, 5]
        return
    with pytest.raises(HeldError, match="a@3: a restart"):
        delete(world.objects, "a", 3, ended=False, by=BY)
    assert live(world) == [1, 2, 3, 4, 5]


def test_what_retention_removed_is_not_deleted() -> None:
    world = World()
    assert Pruner(world.objects, "a").prune(RetentionPolicy(keep_last=1)).commits
    with pytest.raises(NoCheckpointError, match="a@1: retention has removed it"):
        delete(world.objects, "a", 1, ended=True, by=BY)


def live(world: World, job: str = "a") -> list[int]:
    """Commits of a job that are checkpoints now, oldest first."""
    return [n for n in range(head(world.objects, job) + 1) if isinstance(read_entry(world.objects, job, n), Manifest)]


@pytest.mark.parametrize(
    ("policy", "then_saved", "stay", "stay_later"),
    [
        (RetentionPolicy(keep_last=3), 9, [2, 3, 5], [3, 5, 6]),
        (RetentionPolicy(keep_last=1, keep_best=3), 4, [1, 2, 3, 5], [1, 3, 5, 6]),
        (RetentionPolicy(keep_last=1, keep_best=3), 0, [2, 3, 5], [3, 5, 6]),
    ],
)
def test_a_deleted_checkpoint_takes_no_place_of_another(
    policy: RetentionPolicy, then_saved: int, stay: list[int], stay_later: list[int]
) -> None:
    """Losses by commit: 3, 1, 2, 0 and what is saved then."""
    world = World()
    world.save("a", 0)
    pruner = world.trainers["a"].pruner
    pruner.prune(RetentionPolicy(keep_last=4))
    delete(world.objects, "a", 4, ended=True, by=BY)
    world.save("a", then_saved)
    pruner.prune(policy)
    assert live(world) == stay
    delete(world.objects, "a", 2, ended=False, by=BY)
    world.save("a", 8)
    pruner.prune(policy)
    assert live(world) == stay_later


def test_of_a_running_job_the_newest_two_that_a_restart_may_begin_from_are_not_deleted() -> None:
    """The newest may turn out damaged, or to have diverged."""
    world = World()
    world.save("a", 4)
    world.trainers["a"] = world._attempt("a", restore_at_most=3)
    for commit in (2, 3):
        with pytest.raises(HeldError, match=f"a@{commit}: .* the newest two .*trainhouse cancel a"):
            delete(world.objects, "a", commit, ended=False, by=BY)
    assert delete(world.objects, "a", 4, ended=False, by=BY).commit == 4, "passed over"
    assert delete(world.objects, "a", 1, ended=False, by=BY).commit == 1
    assert delete(world.objects, "a", 3, ended=True, by=BY).commit == 3


def test_a_prune_that_was_overtaken_by_a_claim_gives_up_no_restart_point() -> None:
    """A claim that goes back in the chain lands at any moment of a prune, or of a deletion."""
    for call in range(14):
        for does in ("prune", "delete"):
            world = World()
            for value in (4, 5):
                world.save("a", value)
            old = world.trainers["a"].pruner

            points: list[int] = []

            def claim(world: World = world, points: list[int] = points) -> None:
                points.append(max((n for n in live(world) if n <= 3), default=-1))
                world._attempt("a", restore_at_most=3)

            world.objects.before_calls({call: claim})
            try:
                if does == "prune":
                    old.prune(RetentionPolicy(keep_last=2))
                else:
                    delete(world.objects, "a", 3, ended=False, by=BY)
            except HeldError as error:
                assert does == "delete" and "restart" in str(error)
            world.objects.before_calls({})
            if points and points[0] >= 0:
                chosen = Candidates(world.objects, "a", None).next()
                assert chosen is not None and chosen.commit >= points[0], (does, call)


class OldAgentsStore(MemoryObjectStore):
    """Refuses references, as the lease of an agent from before them does."""

    def get(self, key: str) -> bytes:
        if "/tags/" in key:
            raise ObjectStoreRefusedError(f"get of {key} is not among the rights")
        return super().get(key)


def test_a_step_is_found_behind_tombstones_without_a_right_to_references() -> None:
    world = World()
    sound = read_entry(world.objects, "a", 3)
    assert isinstance(sound, Manifest)
    refusing = OldAgentsStore(world.clock)
    for found in world.objects.list("jobs/a/"):
        refusing.put(found.key, world.objects.get(found.key))
    for commit, step in ((4, sound.step), (5, 9)):
        refusing.put(commit_key("a", commit), encode(tombstone(sound.model_copy(update={"commit": commit, "step": step}))))
    with pytest.warns(UserWarning, match="is not kept"):
        assert Candidates(refusing, "c", ResumeFrom(JobId("a"), step=sound.step)).next() == sound
    with pytest.raises(NoCheckpointError):
        Candidates(refusing, "c", ResumeFrom(JobId("a"), 4)).next()


def test_a_deleted_checkpoint_is_not_given_up_again() -> None:
    """Its bytes may be gone since: a new tombstone with a manifest could be put back without them."""
    world = World()
    pruner = world.trainers["a"].pruner
    pruner.prune(RetentionPolicy(keep_last=3))
    delete(world.objects, "a", 1, ended=False, by=BY)
    world.wait(2)
    sweep(world.objects, GRACE_S)
    world.save("a", 4)
    assert pruner.prune(RetentionPolicy(keep_last=1)).commits == (2, 3)
    emptied = read_entry(world.objects, "a", 1)
    assert isinstance(emptied, Pruned) and emptied.manifest is None


def test_a_tombstone_keeps_its_bytes_for_the_grace_even_if_they_are_old() -> None:
    world = World()
    world.save("a", 4)
    world.wait(9)
    world.prune("a")
    assert sweep(world.objects, GRACE_S).chunks == 0
    world.wait(2)
    assert sweep(world.objects, GRACE_S).chunks == 2
    world.check_nothing_else_is_left()


@given(st.lists(steps(), min_size=10, max_size=50))
@settings(max_examples=examples(300))
def test_what_something_refers_to_stays_whole_and_nothing_else_stays(history: list[tuple[Action, dict[int, Any]]]) -> None:
    world = World()
    for action, meanwhile in history:
        world.act(action, meanwhile)
        world.check()
    world.settle()
    world.check(live=True)
    world.check_nothing_else_is_left()
