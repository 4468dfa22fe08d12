"""Sweep of `datasets/`: removes manifests of no version, and shards and indexes that no manifest names which stays.

Holds: `_manifests_kept` and `_shards_kept` are the one rule of what stays: manifests of published versions, deprecated ones too, of those
that intake was asked for, and of jobs that are not over; and shards that such a manifest names, or that a job still has staged. Nothing
goes that is younger than the grace by its own time, looked at again before it goes, nor anything of a project in which a publication runs,
or of which a manifest cannot be read. Interrupted, the next one goes on; two at once do no harm.
Never: decides what was published; its caller read that, whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from trainhouse.checkpointing.chain.chunks import GRACE_S, THREADS, in_threads
from trainhouse.checkpointing.chain.sweeping import Swept, held_up, removed
from trainhouse.checkpointing.stores.object_store import ObjectStat, ObjectStore
from trainhouse.events.model.dataset import Manifest
from trainhouse.events.model.dataset_keys import datasets_prefix
from trainhouse.events.model.output_names import OUTPUTS
from trainhouse.workers.data.errors import DamagedShardError
from trainhouse.workers.data.stored_versions import read_manifest_at, shards_of

_MANIFEST, _PROFILES = ".json", ".profiles.json"


@dataclass(frozen=True)
class NamedVersions:
    """Versions by project and manifest's hash: published ones, and those that intake was or will be asked for. `is_over`: whether a job has
    ended, and all that it asked for was answered."""

    published: frozenset[tuple[str, str]]
    asked: frozenset[tuple[str, str]]
    is_over: Callable[[str], bool]


@dataclass
class _Listed:
    """Objects of one project, by hash: manifests, their profiles, shards with their indexes; and notes of publications that run."""

    prefix: str
    manifests: dict[str, ObjectStat] = field(default_factory=dict)
    profiles: dict[str, ObjectStat] = field(default_factory=dict)
    shards: dict[str, list[ObjectStat]] = field(default_factory=dict)
    running: list[ObjectStat] = field(default_factory=list)

    def add(self, stat: ObjectStat) -> None:
        """Sorts one in; what is called otherwise is left out, and stays."""
        match stat.key.removeprefix(self.prefix).split("/"):
            case ["manifests", name] if name.endswith(_PROFILES):
                self.profiles[name.removesuffix(_PROFILES)] = stat
            case ["manifests", name] if name.endswith(_MANIFEST):
                self.manifests[name.removesuffix(_MANIFEST)] = stat
            case ["shards", _, name] if name.endswith((".tar", ".idx")):
                self.shards.setdefault(name[: -len(".tar")], []).append(stat)
            case ["publishing", _]:
                self.running.append(stat)


def sweep_datasets(objects: ObjectStore, named: NamedVersions, grace_s: float = GRACE_S) -> Swept:
    """Removes what no version needs. Blocks long. Raises what the store raises."""
    projects = dict[str, _Listed]()
    for stat in objects.list("datasets/"):
        prefix = "/".join(stat.key.split("/", 2)[:2]) + "/"
        projects.setdefault(prefix, _Listed(prefix)).add(stat)
    staged = _staged(objects)
    count = freed = 0
    unclear = list[str]()
    for prefix, listed in projects.items():
        try:
            unneeded = _unneeded(objects, listed, named, staged, grace_s)
        except DamagedShardError as error:
            unclear.append(f"nothing below {objects.uri(prefix)} is removed: {error}")
            continue
        for stat in removed(objects, f"{prefix}publishing/", unneeded, grace_s):
            count, freed = count + 1, freed + stat.size_bytes
        if waits := held_up(objects, prefix, "a version is being published", listed.running, grace_s):
            unclear.append(waits)
    return Swept(count, freed, tuple(unclear))


def _staged(objects: ObjectStore) -> frozenset[str]:
    """Hashes of shards that jobs have staged, and may yet name. What is no longer needed of those goes by `sweep_staged`."""
    paths = (stat.key.split("/") for stat in objects.list("jobs/"))
    return frozenset(path[5].partition(".")[0] for path in paths if len(path) == 6 and path[2] == OUTPUTS and path[4] == "shards")


def _unneeded(objects: ObjectStore, listed: _Listed, named: NamedVersions, staged: frozenset[str], grace_s: float) -> Sequence[ObjectStat]:
    """Objects of a project that nothing needs, manifests first. Raises DamagedShardError where that is not known."""
    if any(stat.age_s <= grace_s for stat in listed.running):
        return ()
    kept = _manifests_kept(objects, listed, named, grace_s)
    shards = staged | _shards_kept(objects, listed.prefix, kept)
    of_versions = [stat for each in (listed.manifests, listed.profiles) for sha256, stat in each.items() if sha256 not in kept]
    of_shards = [stat for sha256, stats in listed.shards.items() if sha256 not in shards for stat in stats]
    return [stat for stat in (*of_versions, *of_shards, *listed.running) if stat.age_s > grace_s]


def _manifests_kept(objects: ObjectStore, listed: _Listed, named: NamedVersions, grace_s: float) -> frozenset[str]:
    """Hashes of the manifests that stay."""
    published, asked = (_of_project(versions, listed.prefix) for versions in (named.published, named.asked))
    if missing := sorted(published - listed.manifests.keys()):
        raise DamagedShardError(
            f"the manifest {missing[0]}.json of a published version is missing; publish the version again from its source"
        )
    sure = {sha256 for sha256, stat in listed.manifests.items() if stat.age_s <= grace_s or sha256 in published or sha256 in asked}
    unsure = sorted(listed.manifests.keys() - sure)
    of_jobs = {
        sha256
        for sha256, manifest in _read(objects, listed.prefix, unsure)
        if any(source.job is not None and not named.is_over(str(source.job)) for source in manifest.sources)
    }
    return frozenset(sure | of_jobs)


def _of_project(versions: frozenset[tuple[str, str]], prefix: str) -> set[str]:
    return {sha256 for project, sha256 in versions if datasets_prefix(project) == prefix}


def _shards_kept(objects: ObjectStore, prefix: str, manifests: Iterable[str]) -> frozenset[str]:
    """Hashes of the shards that these manifests name."""
    return frozenset(shard.sha256 for _, manifest in _read(objects, prefix, sorted(manifests)) for _, shard in shards_of(manifest))


def _read(objects: ObjectStore, prefix: str, manifests: Sequence[str]) -> Iterator[tuple[str, Manifest]]:
    def read(sha256: str) -> Manifest:
        return read_manifest_at(objects, f"{prefix}manifests/{sha256}{_MANIFEST}", sha256)

    return zip(manifests, in_threads(read, manifests, THREADS), strict=True)
