"""Sweep of artifacts: of each project the manifests and files that nothing names, and files of runs that were deleted.

Holds: `is_kept` is the one rule of what stays. Nothing goes that is younger than the grace, looked at again before it goes, nor anything
of a project in which something is being stored, or of which a manifest that stays cannot be read. A name by a deleted run counts until
the deletion is older than the grace. Interrupted, the next one goes on; two at once do no harm.
Never: reads anything but the store, so that what it decides does not hang on topics that have forgotten.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trainhouse.checkpointing.artifacts.artifact_store import read_manifest_at
from trainhouse.checkpointing.chain.chunks import GRACE_S, THREADS, in_threads
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.stores.object_store import ObjectStat, ObjectStore
from trainhouse.events.model.artifact import BY_JOB, PREFIX, is_kept

_BATCH = 100
"""Objects that are removed before notes of storing are looked for again."""
_HASH = re.compile(r"[0-9a-f]{64}")
_OF_RUNS = "artifacts/"
"""Prefix of files that each job has of its own: traces, and what MLflow's client stored before projects shared files."""


@dataclass(frozen=True)
class ArtifactSweep:
    """Result: removed objects, and for each project of which nothing went, the reason."""

    objects: int = 0
    bytes_freed: int = 0
    unclear: tuple[str, ...] = ()


@dataclass
class _Listed:
    """Objects of one project: manifests and files by hash; names and references of manifests, and runs of files, by hash."""

    prefix: str
    word: str
    manifests: dict[str, ObjectStat] = field(default_factory=dict)
    files: dict[str, ObjectStat] = field(default_factory=dict)
    named_by: dict[str, list[str]] = field(default_factory=dict)
    of_runs: dict[str, list[str]] = field(default_factory=dict)
    run_files: list[tuple[str, ObjectStat]] = field(default_factory=list)
    names: list[tuple[str, ObjectStat]] = field(default_factory=list)
    deleted: dict[str, ObjectStat] = field(default_factory=dict)
    storing: list[ObjectStat] = field(default_factory=list)

    def add(self, stat: ObjectStat) -> None:
        """Sorts one in; what is called otherwise is left out, and stays."""
        match stat.key.removeprefix(self.prefix).split("/"):
            case ["manifests", name] if _HASH.fullmatch(name.removesuffix(".json")):
                self.manifests[name.removesuffix(".json")] = stat
            case ["objects", _, sha256] if _HASH.fullmatch(sha256):
                self.files[sha256] = stat
            case ["names", _, sha256, by]:
                self.named_by.setdefault(sha256, []).append(by)
                self.names.append((by, stat))
            case ["references", sha256, by]:
                self.named_by.setdefault(sha256, []).append(by)
            case ["run-files", job_id, file]:
                self.of_runs.setdefault(file.rpartition(".")[2], []).append(f"{BY_JOB}{job_id}")
                self.run_files.append((f"{BY_JOB}{job_id}", stat))
            case ["deleted-runs", job_id]:
                self.deleted[job_id] = stat
            case ["storing", _]:
                self.storing.append(stat)


def sweep_artifacts(objects: ObjectStore, grace_s: float = GRACE_S) -> ArtifactSweep:
    """Removes what nothing names. Blocks long. Raises what the store raises."""
    projects = dict[str, _Listed]()
    for stat in objects.list(PREFIX):
        word = stat.key.removeprefix(PREFIX).partition("/")[0]
        projects.setdefault(word, _Listed(f"{PREFIX}{word}/", word)).add(stat)
    count = freed = 0
    unclear = list[str]()
    for listed in projects.values():
        try:
            unneeded = _unneeded(objects, listed, grace_s)
        except DamagedError as error:
            unclear.append(f"nothing below {objects.uri(listed.prefix)} is removed: {error}")
            continue
        for stat in _removed(objects, listed, unneeded, grace_s):
            count, freed = count + 1, freed + stat.size_bytes
    return ArtifactSweep(count, freed, tuple(unclear))


def _unneeded(objects: ObjectStore, listed: _Listed, grace_s: float) -> list[ObjectStat]:
    """Objects of a project that nothing needs: names of deleted runs first, so that nothing is named that is not whole, files last.
    Raises DamagedError where that is not known."""
    if any(stat.age_s <= grace_s for stat in listed.storing):
        return []
    deleted = frozenset(job_id for job_id, stat in listed.deleted.items() if stat.age_s > grace_s)
    datasets = _datasets(objects, listed.word) if any(map(_names_dataset, listed.named_by.values())) else frozenset()
    manifests = {
        sha256
        for sha256, stat in listed.manifests.items()
        if stat.age_s <= grace_s or is_kept(listed.named_by.get(sha256, ()), deleted, datasets)
    }
    files = _files_of(objects, listed, manifests) | {sha256 for sha256, by in listed.of_runs.items() if is_kept(by, deleted, datasets)}
    gone_names = [stat for by, stat in (*listed.names, *listed.run_files) if not is_kept((by,), deleted, datasets)]
    gone_manifests = [stat for sha256, stat in listed.manifests.items() if sha256 not in manifests]
    gone_files = [stat for sha256, stat in listed.files.items() if sha256 not in files]
    of_runs = [stat for job_id in sorted(deleted) for stat in objects.list(f"{_OF_RUNS}{job_id}/")]
    return [stat for stat in (*gone_names, *gone_manifests, *gone_files, *of_runs, *listed.storing) if stat.age_s > grace_s]


def _names_dataset(named_by: Iterable[str]) -> bool:
    return any(by.startswith("dataset.") for by in named_by)


def _datasets(objects: ObjectStore, word: str) -> frozenset[str]:
    """Hashes of the manifests of the project's datasets that are there."""
    names = (stat.key.rpartition("/")[2] for stat in objects.list(f"datasets/{word}/manifests/"))
    return frozenset(name.removesuffix(".json") for name in names if _HASH.fullmatch(name.removesuffix(".json")))


def _files_of(objects: ObjectStore, listed: _Listed, manifests: set[str]) -> set[str]:
    """Hashes of the files that these manifests name. Raises DamagedError where one cannot be read."""

    def files(sha256: str) -> list[str]:
        return [file.sha256 for file in read_manifest_at(objects, listed.manifests[sha256].key, sha256).files]

    if missing := sorted(listed.named_by.keys() - listed.manifests.keys()):
        raise DamagedError(f"the manifest {missing[0]}.json has a name and is missing; store the artifact again, or delete it", missing[0])
    return {sha256 for found in in_threads(files, sorted(manifests), THREADS) for sha256 in found}


def _removed(objects: ObjectStore, listed: _Listed, unneeded: list[ObjectStat], grace_s: float) -> Iterator[ObjectStat]:
    """Removes them and yields each; stops where something begins to be stored, as that may rely on them."""
    for start in range(0, len(unneeded), _BATCH):
        if any(stat.age_s <= grace_s for stat in objects.list(f"{listed.prefix}storing/")):
            return
        for stat in unneeded[start : start + _BATCH]:
            # Looked at again: it may have been sent anew since it was listed.
            again = objects.stat(stat.key)
            if again is not None and again.age_s > grace_s:
                objects.delete(stat.key)
                yield stat
