"""Sweep of artifacts: of each project the manifests and files that nothing names, and files of runs that were deleted.

Holds: `is_kept` is the one rule of what stays. Nothing goes that is younger than the grace, looked at again before it goes, nor anything
of a project in which something is being stored, or of which a manifest that stays cannot be read; other projects are swept all the same. A
job's name of a manifest that is missing keeps nothing. A name by a deleted run counts until
the deletion is older than the grace. Interrupted, the next one goes on; two at once do no harm.
Uploads in parts that began before the grace are ended.
Never: reads anything but the store, so that what it decides does not hang on topics that have forgotten.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trainhouse.checkpointing.artifacts.artifact_store import read_manifest_at
from trainhouse.checkpointing.chain.chunks import GRACE_S, THREADS, in_threads
from trainhouse.checkpointing.chain.sweeping import Swept, held_up, removed
from trainhouse.checkpointing.errors import CheckpointError, DamagedError, RetryableError
from trainhouse.checkpointing.stores.object_store import ListsUploads, ObjectStat, ObjectStore
from trainhouse.events.model.artifact import BY_JOB, ROOTS, is_kept
from trainhouse.events.model.artifact_keys import PREFIX
from trainhouse.events.model.model_content import PREFIX as MODELS

_HASH = re.compile(r"[0-9a-f]{64}")
_OF_RUNS = "artifacts/"
"""Prefix of files that each job has of its own: traces, and what MLflow's client stored before projects shared files."""


@dataclass
class _Listed:
    """Objects of one project: manifests and files by hash; names and references of manifests, and runs of files, by hash. `names`: hash,
    who gave it, and the object, of each name and reference."""

    prefix: str
    word: str
    manifests: dict[str, ObjectStat] = field(default_factory=dict)
    files: dict[str, ObjectStat] = field(default_factory=dict)
    named_by: dict[str, list[str]] = field(default_factory=dict)
    of_runs: dict[str, list[str]] = field(default_factory=dict)
    run_files: list[tuple[str, ObjectStat]] = field(default_factory=list)
    names: list[tuple[str, str, ObjectStat]] = field(default_factory=list)
    deleted: dict[str, ObjectStat] = field(default_factory=dict)
    storing: list[ObjectStat] = field(default_factory=list)
    unnamed: list[ObjectStat] = field(default_factory=list)

    def add(self, stat: ObjectStat) -> None:
        """Sorts one in; what is called otherwise is left out, and stays."""
        match stat.key.removeprefix(self.prefix).split("/"):
            case ["manifests", name] if _HASH.fullmatch(name.removesuffix(".json")):
                self.manifests[name.removesuffix(".json")] = stat
            case ["objects", _, sha256] if _HASH.fullmatch(sha256):
                self.files[sha256] = stat
            case ["names", _, sha256, by] | ["references", sha256, by]:
                self.named_by.setdefault(sha256, []).append(by)
                self.names.append((sha256, by, stat))
            case ["run-files", job_id, file]:
                self.of_runs.setdefault(file.rpartition(".")[2], []).append(f"{BY_JOB}{job_id}")
                self.run_files.append((f"{BY_JOB}{job_id}", stat))
            case ["deleted-runs", job_id]:
                self.deleted[job_id] = stat
            case ["storing", _]:
                self.storing.append(stat)
            case ["unnamed", _]:
                self.unnamed.append(stat)


def sweep_artifacts(objects: ObjectStore, grace_s: float = GRACE_S) -> Swept:
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
            for stat in removed(objects, f"{listed.prefix}storing/", unneeded, grace_s):
                count, freed = count + 1, freed + stat.size_bytes
            if waits := held_up(objects, listed.prefix, "an artifact is being stored", listed.storing, grace_s):
                unclear.append(waits)
        except RetryableError:
            raise  # the store is away for all of them
        except CheckpointError as error:
            unclear.append(f"nothing below {objects.uri(listed.prefix)} is removed: {error}")
    try:
        for stat in _ended(objects, grace_s):
            count, freed = count + 1, freed + stat.size_bytes
    except CheckpointError as error:
        unclear.append(f"uploads below {objects.uri(PREFIX)} that do not go on are left as they are: {error}")
    return Swept(count, freed, tuple(unclear))


def _ended(objects: ObjectStore, grace_s: float) -> Iterator[ObjectStat]:
    """Ends uploads in parts that began before the grace, but of projects in which something is being stored, as it may go on with one."""
    if not isinstance(objects, ListsUploads):
        return
    for upload_id, stat in objects.unfinished_uploads(PREFIX, grace_s):
        word = stat.key.removeprefix(PREFIX).partition("/")[0]
        if all(note.age_s > grace_s for note in objects.list(f"{PREFIX}{word}/storing/")):
            objects.end_upload(stat.key, upload_id)
            yield stat


def _unneeded(objects: ObjectStore, listed: _Listed, grace_s: float) -> list[ObjectStat]:
    """Objects of a project that nothing needs: names of deleted runs first, so that nothing is named that is not whole, files last.
    Raises DamagedError where that is not known."""
    if any(stat.age_s <= grace_s for stat in listed.storing):
        return []
    deleted = frozenset(job_id for job_id, stat in listed.deleted.items() if stat.age_s > grace_s)
    roots = _roots(objects, listed, grace_s) if any(map(_names_root, listed.named_by.values())) else frozenset()
    lone = _lone(objects, listed, deleted, roots)
    manifests = {
        sha256
        for sha256, stat in listed.manifests.items()
        if stat.age_s <= grace_s or is_kept(listed.named_by.get(sha256, ()), deleted, roots)
    }
    files = _files_of(objects, listed, manifests) | {sha256 for sha256, by in listed.of_runs.items() if is_kept(by, deleted, roots)}
    gone_names = [stat for sha256, by, stat in listed.names if sha256 in lone or not is_kept((by,), deleted, roots)]
    gone_names += [stat for by, stat in listed.run_files if not is_kept((by,), deleted, roots)]
    gone_manifests = [stat for sha256, stat in listed.manifests.items() if sha256 not in manifests]
    gone_files = [stat for sha256, stat in listed.files.items() if sha256 not in files]
    of_runs = [stat for job_id in sorted(deleted) for stat in objects.list(f"{_OF_RUNS}{job_id}/")]
    return [
        stat for stat in (*gone_names, *gone_manifests, *gone_files, *of_runs, *listed.storing, *listed.unnamed) if stat.age_s > grace_s
    ]


def _names_root(named_by: Iterable[str]) -> bool:
    return any(by.startswith(ROOTS) for by in named_by)


def _roots(objects: ObjectStore, listed: _Listed, grace_s: float) -> frozenset[str]:
    """Hashes of the manifests of the project's datasets, and of the contents of its models' versions, that are there, or come: their
    references are put before them."""
    stats = (stat for prefix in (f"datasets/{listed.word}/manifests/", f"{MODELS}{listed.word}/contents/") for stat in objects.list(prefix))
    names = (stat.key.rpartition("/")[2].removesuffix(".json") for stat in stats)
    there = {name for name in names if _HASH.fullmatch(name)}
    return frozenset(there | {by.partition(".")[2] for _, by, stat in listed.names if _names_root([by]) and stat.age_s <= grace_s})


def _lone(objects: ObjectStore, listed: _Listed, deleted: frozenset[str], roots: frozenset[str]) -> frozenset[str]:
    """Hashes whose manifests are missing, and that jobs alone name, as any rank can: such names neither keep anything nor hold up the
    sweep. Raises DamagedError where a person, a dataset or a model names one: its files are not known."""
    missing = sorted(listed.named_by.keys() - listed.manifests.keys())
    # Looked for again: it may have come after manifests were listed.
    stats = list(in_threads(lambda sha256: objects.stat(f"{listed.prefix}manifests/{sha256}.json"), missing, THREADS))
    listed.manifests |= {sha256: stat for sha256, stat in zip(missing, stats, strict=True) if stat is not None}
    lone = [sha256 for sha256, stat in zip(missing, stats, strict=True) if stat is None]
    for sha256 in lone:
        if is_kept((by for by in listed.named_by[sha256] if not by.startswith(BY_JOB)), deleted, roots):
            raise DamagedError(f"the manifest {sha256}.json has a name and is missing; store the artifact again, or delete it", sha256)
    return frozenset(lone)


def _files_of(objects: ObjectStore, listed: _Listed, manifests: set[str]) -> set[str]:
    """Hashes of the files that these manifests name. Raises DamagedError where one cannot be read."""

    def files(sha256: str) -> list[str]:
        return [file.sha256 for file in read_manifest_at(objects, listed.manifests[sha256], sha256).files]

    return {sha256 for found in in_threads(files, sorted(manifests), THREADS) for sha256 in found}
