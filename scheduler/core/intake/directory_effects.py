"""Effects of a record of the directory: admitted jobs, requests and pools to the schedulers, refusals to the requester.

Holds: each goes to the partition number of its pool; a project goes to every partition of admission, then to all who read, and its limits
to every scheduler; so does a version of a dataset, without limits, and a grant of one; a refusal is keyed by the id of the event that was
refused, and one for want of a grant goes to the audit, too.
"""

import hashlib
from collections.abc import Iterable, Iterator

from trainhouse.events import (
    DatasetAccessRefused,
    DatasetGranted,
    DatasetGrantRevoked,
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    Event,
    JobRejected,
    JobState,
    JobStatus,
    OutputAnswered,
    PoolCreated,
    ProjectApplied,
    ShardQuarantined,
    ShardReleased,
)
from trainhouse.events.model.routing import JobDirected, LimitsForwarded, RequestForwarded
from trainhouse.events.wire import topics
from trainhouse.scheduler.core.intake.directory_fold import request_of
from trainhouse.scheduler.core.protocol.machine import Effect


def directory_effects(now_ms: int, decisions: Iterable[Event]) -> Iterator[Effect]:
    """The effects of a record's decisions, in their order."""
    for d in decisions:
        match d:
            case JobDirected():
                job_id = d.admission.job_id
                yield Effect(topics.CONTROL, str(d.partition), d.admission, f"{job_id}:admitted", d.partition)
            case RequestForwarded():
                yield Effect(topics.CONTROL, str(d.partition), request_of(d), d.event_id, d.partition, d.pool)
            case PoolCreated():
                yield Effect(topics.CONTROL, str(d.partition), d, f"pool:{d.pool}:{d.partition}", d.partition)
            case ProjectApplied():
                name, event_id = d.project.name, f"project:{_in_id(d.project.name)}:{d.version}"
                for partition in range(d.admission_partitions):
                    yield Effect(topics.ADMISSION, name, d, event_id, partition)
                yield Effect(topics.PROJECTS, name, d, event_id)
            case DatasetVersionPublished():
                tag = f":{d.semver}" if d.semver is not None else ""
                shards = f":shards-{d.quarantine.number}" if d.quarantine is not None else ""
                fields = ":fields" if d.version.fields else ""  # a partition that has seen it without them takes them
                yield from _of_dataset(d, f"dataset:{d.version.dataset}:{d.version.sha256}:published{tag}{shards}{fields}")
            case DatasetVersionDeprecated():
                yield from _of_dataset(d, f"dataset:{d.dataset}:{d.sha256}:deprecated")
            case ShardQuarantined():
                yield from _of_dataset(d, f"shard:{d.dataset}:{d.sha256}:{d.shard}:quarantined:{d.number}")
            case ShardReleased():
                yield from _of_dataset(d, f"shard:{d.dataset}:{d.sha256}:{d.shard}:released:{d.number}")
            case DatasetGranted():
                yield from _of_dataset(d, f"dataset:{d.dataset}:granted:{d.number}")
            case DatasetGrantRevoked():
                yield from _of_dataset(d, f"dataset:{d.dataset}:grant-revoked:{d.number}")
            case DatasetAccessRefused():
                yield Effect(topics.AUDIT, d.user, d, f"{d.submission_id[:480]}:dataset-refused")
            case OutputAnswered():
                event_id = f"{d.job_id}:output:{d.dataset}:{d.sha256}:answered"
                yield Effect(topics.CONTROL, str(d.partition), d, event_id, d.partition, d.pool)
            case LimitsForwarded():
                event_id = f"limits:{_in_id(d.limited.project)}:{d.limited.version}"
                for partition in range(d.first_partition, d.control_partitions):
                    yield Effect(topics.CONTROL, str(partition), d.limited, f"{event_id}:{partition}", partition)
            case JobRejected():
                yield Effect(topics.STATUS, d.submission_id, refusal(d), f"{d.submission_id[:480]}:rejected")


def _of_dataset(
    decided: DatasetVersionPublished | DatasetVersionDeprecated | ShardQuarantined | ShardReleased | DatasetGranted | DatasetGrantRevoked,
    event_id: str,
) -> Iterator[Effect]:
    """To every partition of admission, then to all who read: a job that names a version which was read there comes after it.

    What is sent again is for partitions that missed it; readers keep it as it was first.
    """
    for partition in range(decided.admission_partitions):
        yield Effect(topics.ADMISSION, decided.subject(), decided, event_id, partition)
    if isinstance(decided, ShardReleased | DatasetGrantRevoked) or not decided.resent:
        yield Effect(topics.DATASETS, decided.subject(), decided, event_id)


def _in_id(project: str) -> str:
    """A project's name as part of an event id, which is ASCII: names in other scripts stand there by their hash."""
    ascii_name = project.isascii() and project.isprintable()
    return project if ascii_name else f"sha256-{hashlib.sha256(project.encode()).hexdigest()}"


def refusal(d: JobRejected) -> JobStatus:
    """A refusal as a status, keyed by the id of the event that was refused."""
    return JobStatus(
        job_id=d.job_id,
        status_seq=0,
        state=JobState.REJECTED,
        reason=d.reason,
        project=d.project,
        submission_id=d.submission_id,
        finished_at_ms=d.rejected_at_ms,
        updated_at_ms=d.rejected_at_ms,
    )
