"""Facts of a job by topics that the brokers keep: who submitted it, and what its spec says that it trains on.

Holds: a submission counts if it has the hash that the job's status gives: anyone may send one under a job's name. A spec that is on no
topic any more gives no data.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from trainhouse.events import Event, JobAdmitted, JobSpec, JobStatus, JobSubmitted, decode
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.wire.topics import CONTROL, JOBS, STATUS
from trainhouse.scheduler.stream.interfaces import Log
from trainhouse.scheduler.stream.model_interfaces import KnownJob

TAKE_S: Final = 5.0
T = TypeVar("T")


async def read_job(log: Log, job_id: str) -> KnownJob | None:
    """Facts of a job; None for one without a status. Reads topics from their beginnings; keeps nothing but what is of the job."""
    status = await _last(log, STATUS, job_id, _status)
    if status is None:
        return None
    spec = await _last(log, JOBS, job_id, lambda event: _submitted(event, status.spec_sha256))
    if spec is None:  # it came by its project's topic
        spec = await _last(log, CONTROL, job_id, lambda event: _admitted(event, status.spec_sha256))
    return KnownJob(status.project, status.user, *(data_of(spec) if spec is not None else ()))


def data_of(spec: JobSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Versions of datasets that a spec names, and their splits; a split that its program chooses is not known."""
    if spec.data is None or spec.data.dataset is None:
        return (), ()
    named = str(spec.data.dataset)
    return (named,), (f"{named}/{spec.data.split}",) if spec.data.split is not None else ()


def _status(event: Event) -> JobStatus | None:
    return event if isinstance(event, JobStatus) else None


def _submitted(event: Event, sha256: str) -> JobSpec | None:
    return event.spec if isinstance(event, JobSubmitted) and event.spec.sha256() == sha256 else None


def _admitted(event: Event, sha256: str) -> JobSpec | None:
    # Its spec has another hash: intake put hashes of data in place of tags.
    return event.spec if isinstance(event, JobAdmitted) and event.spec_sha256 == sha256 else None


async def _last(log: Log, topic: str, job_id: str, wanted: Callable[[Event], T | None]) -> T | None:
    """Returns what the last event about the job that is wanted gives, of those that the topic has now."""
    written, found = job_id.encode(), None
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
                        if event is not None and getattr(event, "job_id", None) == job_id:
                            found = wanted(event) or found
        finally:
            await tail.close()
    return found


def _event(value: bytes, headers: tuple[tuple[str, bytes], ...]) -> Event | None:
    try:
        return decode(value, headers).event
    except InvalidEvent:
        return None
