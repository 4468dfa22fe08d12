"""The directory's state over one partition of admission: pools, every job that ever was, requests that wait, what was handled already.

Holds: a job's entry stays for ever (it is what makes a second submission the same job), in tens of bytes; all else is bounded. What
is in the table becomes a segment beside the process when the journal says so (`core/settled.py`).
"""

from collections import ChainMap
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from trainhouse.events import CancelJob, ChangeJob, EventId, JobId, ProjectApplied
from trainhouse.events.model.bounds import read_stored
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.secret_names import SecretName
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.intake.bucket import Bucket
from trainhouse.scheduler.core.intake.datasets import Datasets
from trainhouse.scheduler.core.intake.fingerprint import entry_of, same_project, value_of
from trainhouse.scheduler.core.intake.origins import Origins
from trainhouse.scheduler.core.intake.request_ids import AskedIds
from trainhouse.scheduler.core.protocol.settled import Fetch, Segment, Settled, SettledJobs, segments_of
from trainhouse.scheduler.core.protocol.snapshot_steps import DIRECTORY_FORMATS, parse

FORMAT: Final = DIRECTORY_FORMATS.newest
# Jobs in the table at which they become a segment.
SETTLE_AT: Final = 16_384
MAX_SEEN: Final = 65_536
MAX_HELD: Final = 10_000
MAX_HELD_OF_PROJECT: Final = 1_000
HELD_FOR_MS: Final = 600_000
MAX_POOLS: Final = 4_096
MAX_PROJECTS: Final = 4_096
MAX_SECRETS: Final = 20_000
_POOL_BYTES: Final = 2
_PROJECT_FIELD: Final = value_of("project", "")[0]


@dataclass(frozen=True, slots=True)
class Held:
    """A cancellation or change that came before its submission. `project`: whose topic it came by, if any."""

    event_id: EventId
    job_id: JobId
    since_ms: int
    request: CancelJob | ChangeJob
    project: str | None = None


@dataclass(slots=True)
class DirectoryState:
    """`pools` is in order of creation; `jobs` holds the pool's place in that order, then the spec's fingerprint; `settled` the same of
    jobs that left the table.

    `held` and `seen` are in order of arrival, oldest first; `held_by` has the same of each project, None standing for operators and the
    gateway. `buckets`: what is left of each project's rate of submissions, by the project's
    name (or the rule's, of those that were never declared). `project_marks`: how a fingerprint shows each declared project. `secrets`: whom
    each declared one is granted to. `origins`: which records of the public topics were handled; `asked`: ids of requests that changed
    something. `seen` has the newest ids of all else, so that a prompt repeat is answered once: what it says again, the state holds.
    `control_partitions`: since control grew; None: it never did.
    """

    partition: int
    pools: dict[str, int] = field(default_factory=dict)
    jobs: MutableMapping[str, bytes] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    held_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seen: dict[bytes, None] = field(default_factory=dict)
    pool_names: list[str] = field(default_factory=list)
    projects: dict[str, ProjectApplied] = field(default_factory=dict)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    project_marks: dict[bytes, str] = field(default_factory=dict)
    secrets: dict[SecretName, tuple[str, ...]] = field(default_factory=dict)
    held_by: dict[str | None, dict[str, None]] = field(default_factory=dict)
    settled: Settled | None = None
    origins: Origins = field(default_factory=Origins)
    asked: AskedIds = field(default_factory=AskedIds)
    control_partitions: int | None = None
    datasets: Datasets = field(default_factory=Datasets)

    def fork(self) -> "DirectoryState":
        """A copy to decide on; jobs, of which there may be millions, lie under an overlay instead."""
        return DirectoryState(
            self.partition,
            dict(self.pools),
            ChainMap({}, self.jobs),
            dict(self.held),
            dict(self.held_of),
            dict(self.seen),
            list(self.pool_names),
            dict(self.projects),
            dict(self.buckets),
            dict(self.project_marks),
            dict(self.secrets),
            {project: dict(digests) for project, digests in self.held_by.items()},
            self.settled,
            self.origins.fork(),
            self.asked.fork(),
            self.control_partitions,
            self.datasets.fork(),
        )

    def job(self, job_id: str) -> bytes | None:
        """The entry of a job, wherever it is; None for one that was never submitted."""
        entry = self.jobs.get(job_id)
        return self.settled.get(job_id) if entry is None and self.settled is not None else entry

    def in_table(self) -> int:
        """Returns the number of jobs that are not settled."""
        # A ChainMap counts by making a set of all; a job is in one of its tables alone.
        return sum(map(len, self.jobs.maps)) if isinstance(self.jobs, ChainMap) else len(self.jobs)

    def segments(self) -> int:
        """Returns the number of segments."""
        return 0 if self.settled is None else len(self.settled.parts)

    def settle(self) -> None:
        """Makes the table the next segment, whatever is in it: jobs of a record that is empty now are missing. Raises StateLost."""
        if self.settled is None:
            raise BrokenInvariant("jobs are to be settled in a directory without an index")
        if self.jobs:
            self.settled, self.jobs = self.settled.with_jobs(self.jobs), {}

    def pool_of(self, job_id: str) -> str | None:
        """The pool that a job belongs to for ever, None for a job that was never submitted."""
        entry = self.job(job_id)
        return None if entry is None else self.pool_names[int.from_bytes(entry[:_POOL_BYTES])]

    def fingerprint_of(self, job_id: str) -> bytes:
        """The fingerprint of a known job's spec. Raises KeyError for another."""
        entry = self.job(job_id)
        if entry is None:
            raise KeyError(job_id)
        return entry[_POOL_BYTES:]

    def project_of(self, job_id: str) -> str:
        """The project of a known job, if it was declared since or before; empty for others."""
        mark = entry_of(self.fingerprint_of(job_id), _PROJECT_FIELD)
        return DEFAULT_PROJECT if mark is None else self.project_marks.get(mark, "")

    def put_project(self, applied: ProjectApplied) -> None:
        """Enters a project as it is from now on; an older word about it changes nothing."""
        name = applied.project.name
        known = self.projects.get(name)
        if known is None or known.version < applied.version:
            self.projects[name] = applied
            self.project_marks[value_of("project", name)[1]] = name
        if applied.project.limits.submissions_per_minute is None:
            self.buckets.pop(name, None)

    def belongs(self, job_id: str, project: str | None) -> bool:
        """Whether a known job is a project's; None stands for who may ask of every job."""
        return project is None or same_project(self.fingerprint_of(job_id), project)

    def put_job(self, job_id: str, pool: str, fingerprint: bytes) -> None:
        """Enters a job. The pool must be known."""
        self.jobs[job_id] = self.pool_names.index(pool).to_bytes(_POOL_BYTES) + fingerprint

    def put_pool(self, pool: str, partition: int) -> None:
        """Enters a pool; a known one stays as it is."""
        if pool not in self.pools:
            self.pools[pool] = partition
            self.pool_names.append(pool)

    def hold(self, digest: str, held: Held) -> None:
        """Keeps an early request, as the newest."""
        self.held[digest] = held
        self.held_of[held.job_id] = (*self.held_of.get(held.job_id, ()), digest)
        self.held_by.setdefault(held.project, {})[digest] = None

    def unhold(self, digest: str) -> None:
        """Lets an early request go."""
        held = self.held.pop(digest)
        left = tuple(d for d in self.held_of[held.job_id] if d != digest)
        if left:
            self.held_of[held.job_id] = left
        else:
            del self.held_of[held.job_id]
        del self.held_by[held.project][digest]
        if not self.held_by[held.project]:
            del self.held_by[held.project]

    def most_held(self, asking: str | None) -> str | None:
        """Returns the project with the most requests held; of equals, the one that asks."""
        # By name in the end: a state that was read back has them in another order.
        return max(self.held_by, key=lambda project: (len(self.held_by[project]), project == asking, project or ""))

    def see(self, digest: bytes) -> None:
        """Remembers an event; forgets the oldest beyond MAX_SEEN."""
        self.seen[digest] = None
        if len(self.seen) > MAX_SEEN:
            del self.seen[next(iter(self.seen))]


def dump_directory(state: DirectoryState) -> bytes:
    """Canonical JSON."""
    return capture_directory(state)()


def capture_directory(state: DirectoryState) -> Callable[[], bytes]:
    """The same for later: holds on to what is there now, none of which changes in itself."""
    kept = DirectoryState(state.partition, dict(state.pools), dict(state.jobs), dict(state.held), seen=dict(state.seen))
    kept.projects, kept.buckets, kept.secrets, kept.settled = dict(state.projects), dict(state.buckets), dict(state.secrets), state.settled
    kept.control_partitions = state.control_partitions
    kept.datasets = state.datasets.fork()
    kept.origins, kept.asked = state.origins.copy(), state.asked.copy()
    return lambda: _written(kept)


def _written(state: DirectoryState) -> bytes:
    return orjson.dumps(
        {
            "format": FORMAT,
            "partition": state.partition,
            "pools": list(state.pools.items()),
            "jobs": {str(j): state.jobs[j].hex() for j in sorted(state.jobs)},
            "settled": [] if state.settled is None else state.settled.rows(),
            "held": [_held_json(digest, held) for digest, held in state.held.items()],
            "seen": [d.hex() for d in state.seen],
            **({"secrets": [[n.project, n.name, grants] for n, grants in sorted(state.secrets.items())]} if state.secrets else {}),
            **({"datasets": datasets} if (datasets := state.datasets.dump()) else {}),
            **({"control_partitions": state.control_partitions} if state.control_partitions is not None else {}),
        }
        | _projects_json(state)
        | _handled_json(state),
        option=orjson.OPT_SORT_KEYS,
    )


def load_directory(data: bytes, index: SettledJobs, fetch: Fetch) -> DirectoryState:
    """Reads it back, an older format too. Raises BrokenInvariant on one that no step leads from, StateLost where a segment is nowhere."""
    raw = DIRECTORY_FORMATS.lifted(parse(data))
    segments: tuple[Segment, ...] = segments_of(raw["settled"])
    index.attach(raw["partition"], segments, fetch)
    state = DirectoryState(raw["partition"], settled=Settled(index, raw["partition"], segments))
    for pool, partition in raw["pools"]:
        state.put_pool(pool, partition)
    state.jobs = {j: bytes.fromhex(entry) for j, entry in raw["jobs"].items()}
    for h in raw["held"]:
        cancels = h["kind"] == CancelJob.event_type
        request = read_stored(CancelJob, h["request"]) if cancels else read_stored(ChangeJob, h["request"])
        held = Held(EventId(h["event_id"]), JobId(h["job_id"]), h["since_ms"], request, h.get("project"))
        state.hold(h["digest"], held)
    for applied in raw.get("projects", {}).values():
        state.put_project(read_stored(ProjectApplied, applied))
    state.buckets = {name: Bucket(level, at_ms) for name, (level, at_ms) in raw.get("buckets", {}).items()}
    state.seen = {bytes.fromhex(d): None for d in raw["seen"]}
    state.control_partitions = raw.get("control_partitions")
    state.secrets = {SecretName(project, name): tuple(grants) for project, name, grants in raw.get("secrets", ())}
    state.datasets = Datasets.load(raw.get("datasets", {}))
    state.origins = Origins.load(raw.get("origins", []))
    state.asked = AskedIds.load(raw.get("asked", []))
    return state


def _handled_json(state: DirectoryState) -> dict[str, Any]:
    """Nothing for a directory of before, so that its state has the hash that it had."""
    return {name: dumped for name, dumped in (("origins", state.origins.dump()), ("asked", state.asked.dump())) if dumped}


def _projects_json(state: DirectoryState) -> dict[str, Any]:
    """Of a directory without projects nothing, so that its state has the hash that it had before there were any."""
    if not state.projects:
        return {}
    return {
        "projects": {name: state.projects[name].model_dump(mode="json") for name in sorted(state.projects)},
        "buckets": {name: [state.buckets[name].level, state.buckets[name].at_ms] for name in sorted(state.buckets)},
    }


def _held_json(digest: str, held: Held) -> dict[str, Any]:
    project = {} if held.project is None else {"project": held.project}
    return project | {
        "digest": digest,
        "event_id": held.event_id,
        "job_id": held.job_id,
        "since_ms": held.since_ms,
        "kind": held.request.event_type,
        "request": held.request.model_dump(mode="json"),
    }
