"""Sweep of `datasets/`: what no version needs goes after a day; what one needs, or may yet, never does."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.stores.object_store import Body
from trainhouse.events.model.dataset import DatasetVersion
from trainhouse.events.model.dataset_keys import index_key, manifest_key, profiles_key, publishing_key, shard_key
from trainhouse.workers.data.dataset_sweep import NamedVersions, sweep_datasets
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.sealing import seal, sweep_staged
from trainhouse.workers.data.outputs.written_output import JobOutputStore, Output
from trainhouse.workers.data.published_data import open_split
from trainhouse.workers.data.publishing.noted_store import NotedStore
from trainhouse.workers.data.settings import DataSettings

DAY_S = 24 * 3600.0
NONE = NamedVersions(frozenset(), frozenset(), lambda _: True)


class KilledError(Exception):
    """The process ended here."""


class Store(MemoryObjectStore):
    """Ends its process at the put with the number `killed_at` of those to datasets."""

    def __init__(self) -> None:
        self.now_s, self.killed_at = 1e9, -1
        super().__init__(clock=lambda: self.now_s)

    def put(self, key: str, body: Body) -> None:
        if key.startswith("datasets/"):
            self.killed_at -= 1
            if self.killed_at == -1:
                raise KilledError
        super().put(key, body)

    def below(self, prefix: str = "datasets/") -> list[str]:
        return [stat.key for stat in self.list(prefix)]

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def store() -> Store:
    return Store()


def written(store: Store, job: str, *texts: str) -> None:
    with Output(JobOutputStore(store, job, "out", 0, 0), 0) as output:
        for text in texts:
            with output.piece(text) as piece:
                piece.add({"txt": text})


def published(*versions: DatasetVersion) -> NamedVersions:
    return replace(NONE, published=frozenset((version.project, version.sha256) for version in versions))


def texts(store: Store, version: DatasetVersion) -> list[bytes]:
    found = open_split(f"out@sha256:{version.sha256}", version.project, "train", store, DataSettings(cache_gib=0))
    return [found[n]["txt"] for n in range(len(found))]


@pytest.mark.parametrize("killed_at", range(8))
def test_what_an_attempt_left_that_was_killed_between_put_and_publication_goes_and_a_version_stays(store: Store, killed_at: int) -> None:
    written(store, "good", "a", "b")
    version = seal(store, "good", "lm", "out", 0)
    kept = store.below()
    written(store, "killed", "b", "c", "d", "e")  # 2 objects of each new shard, distributions, then the manifest
    store.killed_at = killed_at
    with pytest.raises(KilledError):
        seal(store, "killed", "lm", "out", 0)
    store.killed_at = -1
    assert sweep_datasets(store, published(version)).objects == 0, "younger than a day"
    store.pass_s(DAY_S + 1)
    running = replace(published(version), is_over=lambda job: job != "killed")
    assert sweep_staged(store, running.is_over) > 0
    nameless = int(killed_at == 7)  # distributions without their manifest, which the next attempt writes anew
    assert sweep_datasets(store, running).objects == nameless, "the next attempt may name them"
    assert seal(store, "killed", "lm", "out", 0).row_count == 4
    sweep_staged(store, lambda _: True)
    store.pass_s(DAY_S + 1)
    assert sweep_datasets(store, published(version)).objects == 8
    assert store.below() == kept and texts(store, version) == [b"a", b"b"]


def orphan(store: Store, job: str = "refused", project: str = "lm") -> DatasetVersion:
    """A version that was sealed, of which nothing but what lies below `datasets/` is left, older than a day."""
    written(store, job, "x")
    version = seal(store, job, project, "out", 0)
    store.put(profiles_key(project, version.sha256), b"{}")
    for key in store.below("jobs/"):
        store.delete(key)
    store.pass_s(DAY_S + 1)
    return version


@pytest.mark.parametrize("project", ["lm", "of two words"])
def test_what_no_version_names_goes_with_its_profiles(store: Store, project: str) -> None:
    orphan(store, project=project)
    found = sweep_datasets(store, NONE)
    assert found.objects == 4 and found.bytes_freed > 0 and not found.unclear and not store.below()


def test_a_version_that_was_published_or_asked_for_or_whose_job_goes_on_stays(store: Store) -> None:
    version = orphan(store)
    name = frozenset({("lm", version.sha256)})
    for named in (replace(NONE, published=name), replace(NONE, asked=name), replace(NONE, is_over=lambda job: job != "refused")):
        assert sweep_datasets(store, named).objects == 0
    assert sweep_datasets(store, replace(NONE, published=frozenset({("other", version.sha256)}))).objects == 4


def test_a_shard_that_a_job_has_staged_stays(store: Store) -> None:
    orphan(store)
    written(store, "later", "x")
    assert sweep_datasets(store, NONE).objects == 2, "the manifest, and its profiles"
    assert {key.rpartition(".")[2] for key in store.below()} == {"tar", "idx"}


def test_a_manifest_that_is_younger_keeps_its_shards(store: Store) -> None:
    version = orphan(store)
    store.put(manifest_key("lm", version.sha256), store.get(manifest_key("lm", version.sha256)))
    sweep_datasets(store, NONE)
    assert texts(store, version) == [b"x"]


@pytest.mark.parametrize("damaged", [True, False])
def test_of_a_project_with_a_manifest_that_cannot_be_read_nothing_goes(store: Store, damaged: bool) -> None:
    version = orphan(store)
    other = orphan(store, "other")
    if damaged:
        store.put(manifest_key("lm", version.sha256), b"{}")
        store.pass_s(DAY_S + 1)
    else:
        store.delete(manifest_key("lm", version.sha256))
    orphan(store, project="clean")
    before = store.below("datasets/lm/")
    found = sweep_datasets(store, published(version))
    assert store.below() == before and found.objects == 4
    assert manifest_key("lm", other.sha256) in before
    assert len(found.unclear) == 1 and version.sha256 in found.unclear[0]


def test_while_a_publication_runs_nothing_of_its_project_goes(store: Store) -> None:
    version = orphan(store)
    tar = shard_key("lm", version.sha256)  # a key of which there is no object
    with NotedStore(store, "lm") as noted:
        assert noted.stat(tar) is None
        assert sweep_datasets(store, NONE).objects == 0
        noted.check()
    assert sweep_datasets(store, NONE).objects == 4


def test_a_note_of_a_publication_that_was_killed_counts_for_a_day(store: Store) -> None:
    orphan(store)
    store.put(publishing_key("lm", "killed"), b"")
    found = sweep_datasets(store, NONE)
    assert found.objects == 0 and len(found.unclear) == 1
    assert "a version is being published" in found.unclear[0]
    assert re.search(r"nothing below .*datasets/lm/ is removed yet: .* after 20\d\d-\d\d-\d\d \d\d:\d\d UTC", found.unclear[0])
    store.pass_s(DAY_S + 1)
    assert sweep_datasets(store, NONE).objects == 5 and not store.below()


class Beside(Store):
    """Begins something right before the sweep's first removal."""

    def __init__(self) -> None:
        super().__init__()
        self.beginning: Iterator[None] = iter(())

    def delete(self, key: str) -> None:
        next(self.beginning, None)
        super().delete(key)


def test_a_publication_that_relied_on_what_a_sweep_removed_in_that_instant_is_not_published() -> None:
    store = Beside()
    version = orphan(store)
    shard = next(key for key in store.below() if key.endswith(".tar"))
    with NotedStore(store, "lm") as noted:
        assert noted.stat(shard) is not None
        noted.check()
        MemoryObjectStore.delete(store, shard)
        with pytest.raises(InvalidDataError, match="removed by a sweep meanwhile; publish again"):
            noted.check()
        noted.put(shard, b"anew")
        noted.check()
    assert version.sha256


def test_what_is_sent_anew_after_it_was_listed_stays() -> None:
    store = Beside()
    version = orphan(store)
    tar = next(key for key in store.below() if key.endswith(".tar"))
    sha256 = tar.rpartition("/")[2].removesuffix(".tar")

    def sent_anew() -> Iterator[None]:
        for key in (shard_key("lm", sha256), index_key("lm", sha256)):
            store.put(key, store.get(key))
        yield

    store.beginning = sent_anew()
    assert sweep_datasets(store, NONE).objects == 2
    assert {shard_key("lm", sha256), index_key("lm", sha256)} == set(store.below()) and version.sha256


def test_distributions_of_a_killed_attempt_are_young_again_when_the_next_one_names_them(store: Store) -> None:
    """Else a sweep that began before the manifest was there would take them by their age, and the version had none."""
    written(store, "killed", "a", "b")
    store.killed_at = 5  # the manifest, after two objects of each shard and the distributions
    with pytest.raises(KilledError):
        seal(store, "killed", "lm", "out", 0)
    store.killed_at = -1
    store.pass_s(DAY_S + 1)
    version = seal(store, "killed", "lm", "out", 0)
    stat = store.stat(profiles_key("lm", version.sha256))
    assert stat is not None and stat.age_s == 0
