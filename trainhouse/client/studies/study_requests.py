"""Requests to the tuner over Kafka or over the gateway, and the status of a study, followed.

Holds: a request returns when the tuner has answered it, never before; a refusal is an exception with the tuner's own words. Over the
gateway the requester is the token's.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from trainhouse.client.errors import ChangeRefusedError, NoReplyError, NotReachableError, UnknownStudyError
from trainhouse.client.gateway.exchange import NotFoundError, Request, ask
from trainhouse.client.kafka.outcomes import Outcomes, event_of, key_of
from trainhouse.client.kafka.status_feed import METADATA_TIMEOUT_S, SILENT, unreachable
from trainhouse.client.studies.study_reads import STUDIES as STUDIES_PATH
from trainhouse.client.studies.study_reads import StudyReads, study_path
from trainhouse.events import (
    StudyBegun,
    StudyChanged,
    StudyCreated,
    StudyPauseRequested,
    StudyRequestRefused,
    StudyResumeRequested,
    StudyStatus,
    StudyStopRequested,
)
from trainhouse.events.bus.kafka import consumer, next_records, partitions_of
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.wire.topics import STUDIES, STUDY_HISTORY, STUDY_REQUESTS

if TYPE_CHECKING:
    from trainhouse.client.backend_protocol import Row
    from trainhouse.client.client import TrainhouseClient
    from trainhouse.client.gateway.backend import ByGateway
    from trainhouse.events.settings import KafkaSettings

POLL_S: Final = 0.5
LOOK_S: Final = 1.0
TABLES_S: Final = 3.0
_WORDS: Final = {StudyPauseRequested: "pause", StudyResumeRequested: "resume", StudyStopRequested: "stop"}
StudyChange = StudyPauseRequested | StudyResumeRequested | StudyStopRequested


def create_study(client: "TrainhouseClient", event: StudyCreated, timeout_s: float) -> "Row":
    """Asks that a study begin; returns project, study, number, state and reason. Blocks. Raises ChangeRefusedError, NoReplyError,
    InvalidSpecError."""
    from trainhouse.client.gateway.backend import ByGateway

    if not isinstance(client.way, ByGateway):
        return _asked(client, event, timeout_s)
    spec = event.spec.model_dump(mode="json", exclude_unset=True)
    body = {"name": event.study, "project": event.project, "spec": spec}
    return _posted(client.way, Request("POST", STUDIES_PATH, body=body))


def change_study(client: "TrainhouseClient", event: StudyChange, timeout_s: float) -> "Row":
    """Pauses, resumes or stops a study; returns as `create_study`. Blocks. Raises ChangeRefusedError, NoReplyError, UnknownStudyError."""
    from trainhouse.client.gateway.backend import ByGateway

    if not isinstance(client.way, ByGateway):
        return _asked(client, event, timeout_s)
    path = study_path(event.study, _WORDS[type(event)])
    try:
        return _posted(client.way, Request("POST", path, {"project": event.project}, {"reason": event.reason}))
    except NotFoundError as error:
        raise UnknownStudyError(event.project, event.study) from error


def follow_study(client: "TrainhouseClient", project: str, name: str) -> "Iterator[Row | None]":
    """Yields the status of a study and each that follows, and None about every second between, without end. Raises UnknownStudyError."""
    from trainhouse.client.gateway.backend import ByGateway

    if isinstance(client.way, ByGateway):
        return _by_looks(client.way, project, name)
    return _by_topic(client.kafka, project, name)


def _asked(client: "TrainhouseClient", event: StudyCreated | StudyChange, timeout_s: float) -> "Row":
    from trainhouse.client.kafka.backend import ByKafka

    way = client.way
    assert isinstance(way, ByKafka)  # nosec B101  # there is no third way
    with Outcomes(way.kafka, [STUDY_HISTORY]) as outcomes:
        sent = way.send(event, None, STUDY_REQUESTS)
        try:
            decided = outcomes.first(lambda message: answer_of(message, sent), timeout_s, "")
        except NoReplyError as error:
            raise NoReplyError(
                f"the tuner did not answer within {timeout_s:g} s. The request was sent, and counts as soon as the tuner gets to it: "
                "is it up? See `trainhouse ps`"
            ) from error
    _let_tables_follow(client)
    about = {"project": event.project, "study": event.study, "event_id": sent, "number": decided.number}
    if isinstance(decided, StudyChanged):
        return about | {"state": decided.state.value, "reason": decided.reason}
    return about | {"state": "RUNNING", "reason": ""}


def answer_of(message: Message, request_id: str) -> StudyBegun | StudyChanged | None:
    """The decision on a request that a record holds; None: it holds none. Raises ChangeRefusedError."""
    event = event_of(message)
    if not isinstance(event, StudyBegun | StudyChanged | StudyRequestRefused) or event.request_id != request_id:
        return None
    if isinstance(event, StudyRequestRefused):
        raise ChangeRefusedError(event.reason)
    return event


def _let_tables_follow(client: "TrainhouseClient") -> None:
    """Waits, for a moment, until the tables have what was decided, so that the next command finds it."""
    import logging

    from trainhouse.client.kafka.freshness import reached

    reached(client.kafka, client.sql, STUDY_HISTORY, STUDIES, wait_s=TABLES_S, level=logging.DEBUG)


def _posted(way: "ByGateway", request: Request) -> "Row":
    found: Row = way.run(ask(request)).json()
    return found


def _by_looks(way: "ByGateway", project: str, name: str) -> "Iterator[Row | None]":
    reads, number = StudyReads(gateway=way), None
    while True:
        found = reads.study(project, name)
        seen: Any = (found["updated_at_ms"], found["state"], found["trials"])
        yield None if seen == number else found
        number = seen
        time.sleep(LOOK_S)


def _by_topic(kafka: "KafkaSettings", project: str, name: str) -> "Iterator[Row | None]":
    options: dict[str, Any] = {**SILENT, "enable.partition.eof": True}
    reader = consumer(kafka, **options)
    key, known, waits_for = f"{project}/{name}", False, set[int]()
    try:
        waits_for.update(partitions_of(reader, STUDIES, METADATA_TIMEOUT_S))
        reader.assign([TopicPartition(STUDIES, number, 0) for number in waits_for])
        while True:
            newest = None
            for message in next_records(reader, 500, POLL_S):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    waits_for.discard(message.partition() or 0)
                elif error is None and message.value() is not None and key_of(message) == key:
                    event = event_of(message)
                    newest = event if isinstance(event, StudyStatus) else newest
            known = known or newest is not None
            if not known and not waits_for:
                raise UnknownStudyError(project, name)
            yield None if newest is None else newest.model_dump(mode="json")
    except (KafkaException, BusUnavailableError) as error:
        raise NotReachableError(unreachable(kafka.bootstrap, error)) from error
    finally:
        reader.close()
