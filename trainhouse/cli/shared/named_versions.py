"""Jobs and versions of datasets that the topics name, for a sweep of the object store: each topic is read once, to its end, for all jobs.

Holds: what cannot be read whole raises: a record of a newer program, one that expired, brokers that are away. Statuses are read first,
versions last: of a job that is over, what it published is seen. A job is over for `over_s` before it counts as over, longer than intake
takes to write down what it answered.
Never: takes an empty topic for one that names nothing.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaException

from trainhouse.client.errors import NotReachableError
from trainhouse.client.kafka.scan import scan
from trainhouse.client.kafka.status_feed import METADATA_TIMEOUT_S, QUIET, unreachable
from trainhouse.events import DatasetVersionPublished, Event, InvalidEvent, JobStatus, OutputAnswered, PublishDataset, decode
from trainhouse.events.bus.kafka import at_least_s, consumer, headers_of, read_to_end
from trainhouse.events.model.errors import BusUnavailableError, RecordsGoneError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import CONTROL, DATASETS, JOBS, STATUS

Versions = frozenset[tuple[str, str]]
"""Project and hash of the manifest of each."""


class NotWholeError(Exception):
    """A topic cannot be read whole, so it is not known what it names."""


@dataclass(frozen=True)
class RunningJobs:
    """Jobs that are not over, or not for long enough."""

    job_ids: frozenset[str]

    def is_over(self, job_id: str) -> bool:
        """Whether a job has ended, or ended so long ago that the topic has given it up."""
        return job_id not in self.job_ids


def running_jobs(settings: KafkaSettings, over_s: float) -> RunningJobs:
    """Reads the topic of statuses. Blocks. Raises NotWholeError, NotReachableError."""
    before_ms = (time.time() - over_s) * 1000
    running, count = set[str](), 0
    for key, event in _events(settings, STATUS, whole=False):
        count += 1
        if isinstance(event, JobStatus) and not (event.state.final and event.updated_at_ms < before_ms):
            running.add(key)
        else:
            running.discard(key)
    if not count:
        raise NotWholeError(f"topic {STATUS} is empty, so it is not known which jobs run")
    return RunningJobs(frozenset(running))


def asked_versions(settings: KafkaSettings) -> Versions:
    """The versions that intake was or will be asked to publish, as far back as requests are kept, without outputs of jobs that it has
    refused since. Blocks. Raises NotWholeError, NotReachableError."""
    reader = consumer(settings, **QUIET)
    try:
        listed = reader.list_topics(timeout=at_least_s(reader, METADATA_TIMEOUT_S)).topics
    except KafkaException as error:
        raise NotReachableError(unreachable(settings.bootstrap, error)) from error
    finally:
        reader.close()
    topics = [topic for topic in listed if topic == JOBS or topic.startswith(f"{JOBS}.")]
    # By when each was asked last. Outputs by their jobs too: that of one may be refused, and of another not answered.
    asked_ms = dict[_Asked, int]()
    for message in scan(settings, topics, PublishDataset.event_type.encode()):
        try:
            event = decode(message.value(), headers_of(message)).event
        except InvalidEvent as error:
            raise NotWholeError(
                f"topic {message.topic()}: record {message.offset()} of partition {message.partition()}: {error}"
            ) from error
        if isinstance(event, PublishDataset):
            asked = _Asked(event.version.project, event.version.dataset, event.version.sha256, event.job_id)
            asked_ms[asked] = max(asked_ms.get(asked, 0), message.timestamp()[1])
    # Answers after requests: one that was refused is asked for again only under a later time.
    refused_ms = _refused_ms(settings) if any(asked.job_id is not None for asked in asked_ms) else {}
    open_ = (asked for asked, at_ms in asked_ms.items() if refused_ms.get((asked.job_id, asked.dataset, asked.sha256), -1) < at_ms)
    return frozenset((asked.project, asked.sha256) for asked in open_)


class _Asked(NamedTuple):
    """A request to publish. `job_id`: that of whose output it is."""

    project: str
    dataset: str
    sha256: str
    job_id: str | None


def _refused_ms(settings: KafkaSettings) -> dict[tuple[str | None, str, str], int]:
    """Times at which intake refused outputs, by job, dataset and hash, as far back as they are kept. An answer that cannot be read is none:
    what it was about stays. Blocks. Raises NotReachableError."""
    found = dict[tuple[str | None, str, str], int]()
    for message in scan(settings, [CONTROL], OutputAnswered.event_type.encode()):
        try:
            event = decode(message.value(), headers_of(message)).event
        except InvalidEvent:
            continue
        if isinstance(event, OutputAnswered) and event.refusal:
            asked = (str(event.job_id), str(event.dataset), event.sha256)
            found[asked] = max(found.get(asked, 0), message.timestamp()[1])
    return found


def published_versions(settings: KafkaSettings) -> Versions:
    """All versions that were ever published, deprecated ones too. Blocks. Raises NotWholeError, NotReachableError."""
    found = {
        (event.version.project, event.version.sha256)
        for _, event in _events(settings, DATASETS, whole=True)
        if isinstance(event, DatasetVersionPublished)
    }
    if not found:
        raise NotWholeError(f"topic {DATASETS} has no version")
    return frozenset(found)


def _events(settings: KafkaSettings, topic: str, *, whole: bool) -> Iterator[tuple[str, Event | None]]:
    """Keys and events up to the topic's end, those of a key in their order; None for a tombstone."""
    reader = consumer(settings, **QUIET)
    try:
        known = reader.list_topics(topic, timeout=at_least_s(reader, METADATA_TIMEOUT_S)).topics[topic]
        if known.error is not None:
            raise NotReachableError(f"{settings.bootstrap} has no topic {topic}: {known.error.str()}; `trainhouse up` makes it")
        for message in read_to_end(reader, topic, sorted(known.partitions), whole=whole):
            key = (message.key() or b"").decode("utf-8", "replace")
            yield key, None if message.value() is None else decode(message.value(), headers_of(message)).event
    except RecordsGoneError as error:
        raise NotWholeError(str(error)) from error
    except InvalidEvent as error:
        raise NotWholeError(f"topic {topic} has a record that this program cannot read: {error}") from error
    except (KafkaException, BusUnavailableError) as error:
        raise NotReachableError(unreachable(settings.bootstrap, error)) from error
    finally:
        reader.close()
