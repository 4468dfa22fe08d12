"""Facts of a job by topics that the brokers keep: who submitted it, and what its spec says that it trains on; of a run, or a model, that a
client logged, who did.

Holds: a submission counts if it has the hash that the job's status gives: anyone may send one under a job's name. The topic of admissions
never expires, so a job may run for as long as it likes; where a spec is on no topic any more all the same (trimmed to the archive), it is
said that its data is not known. Of what a client logged the first word counts, and its data is never known.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from trainhouse.events import DatasetVersionPublished, Event, JobAdmitted, JobSpec, JobStatus, JobSubmitted, decode
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.tracking import LoggedModelChanged, TrackedRunBegun
from trainhouse.events.model.version_names import is_by_content
from trainhouse.events.wire.topics import ADMISSION, CONTROL, DATASETS, JOBS, STATUS, TRACKING
from trainhouse.scheduler.core.registry.job_registrations import data_of
from trainhouse.scheduler.stream.interfaces import Log
from trainhouse.scheduler.stream.model_interfaces import KnownJob

TAKE_S: Final = 5.0
T = TypeVar("T")


async def read_job(log: Log, job_id: str) -> KnownJob | None:
    """Facts of a job, or of what a client logged; None for one that no topic has. Reads topics from their beginnings; keeps nothing but
    what is of the job."""
    status = await _last(log, STATUS, job_id, lambda event: event if isinstance(event, JobStatus) and _is_of(event, job_id) else None)
    if status is None:
        return await _last(log, TRACKING, job_id, lambda event: _logged(event, job_id), is_first=True)
    spec = await read_spec(log, job_id, status.spec_sha256)
    data, splits = ((), ()) if spec is None else data_of(spec)
    return KnownJob(status.project, status.user, data, splits, has_spec=spec is not None)


async def read_spec(log: Log, job_id: str, sha256: str) -> JobSpec | None:
    """The spec of a job as it was admitted: its data named by hash. `sha256`: hash of the spec as it was submitted. None: it is on no topic
    any more. Reads topics as `read_job` does."""
    spec = await _last(log, JOBS, job_id, lambda event: _submitted(event, job_id, sha256))
    if spec is None:  # it came by its project's topic
        admitted = await _last(log, CONTROL, job_id, lambda event: _admitted(event, job_id, sha256))
        if admitted is not None:
            return admitted
        # It began before all that control has. Read last: the topic has all requests that ever were.
        spec = await _last(log, ADMISSION, job_id, lambda event: _submitted(event, job_id, sha256))
        if spec is None:
            return None
    if spec.data is None or spec.data.dataset is None or is_by_content(spec.data.dataset):
        return spec
    name, _, tag = spec.data.dataset.partition("@")
    found = await _last(log, DATASETS, name, lambda event: _tagged(event, name, tag))
    return spec if found is None else spec.model_copy(update={"data": spec.data.model_copy(update={"dataset": found})})


def _logged(event: Event, job_id: str) -> KnownJob | None:
    """Facts of a run, or a model, by the event with which its client began it."""
    if isinstance(event, TrackedRunBegun) and _is_of(event, job_id):
        return KnownJob(event.project, event.user, has_spec=False)
    if isinstance(event, LoggedModelChanged) and event.created and event.model_id == job_id:
        return KnownJob(event.project, event.user, has_spec=False)
    return None


def _is_of(event: Event, job_id: str) -> bool:
    return getattr(event, "job_id", None) == job_id


def _submitted(event: Event, job_id: str, sha256: str) -> JobSpec | None:
    return event.spec if isinstance(event, JobSubmitted) and _is_of(event, job_id) and event.spec.sha256() == sha256 else None


def _admitted(event: Event, job_id: str, sha256: str) -> JobSpec | None:
    # Its spec has another hash: intake put hashes of data in place of tags.
    return event.spec if isinstance(event, JobAdmitted) and _is_of(event, job_id) and event.spec_sha256 == sha256 else None


def _tagged(event: Event, dataset: str, tag: str) -> str | None:
    of_dataset = isinstance(event, DatasetVersionPublished) and event.version.dataset == dataset and event.semver == tag
    return str(event.version.name) if of_dataset and isinstance(event, DatasetVersionPublished) else None


async def _last(log: Log, topic: str, word: str, wanted: Callable[[Event], T | None], is_first: bool = False) -> T | None:
    """Returns what the last event that is wanted gives, or the first one, of those that the topic has now. `word`: stands in each that may
    be."""
    written, found = word.encode(), None
    for partition in await log.partitions(topic):
        start, end = await log.bounds(topic, partition)
        if start >= end:
            continue
        tail = await log.open_tail(topic, {partition: start})
        try:
            while await tail.position(partition) < end:
                for entry in await tail.take(TAKE_S):
                    if entry.value is not None and written in entry.value:
                        event = _event(entry.value, entry.headers)
                        if event is not None and not (is_first and found is not None):
                            found = wanted(event) or found
        finally:
            await tail.close()
    return found


def _event(value: bytes, headers: tuple[tuple[str, bytes], ...]) -> Event | None:
    try:
        return decode(value, headers).event
    except InvalidEvent:
        return None
