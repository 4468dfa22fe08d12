"""The spec of a job as it was submitted, with the values of its environment: from the journal, since tables have none.

Holds: the tables say where in the journal it stands, so one record is read, from the topic or its archive. Values go into a new submission,
never into an answer.
"""

from __future__ import annotations

import asyncio

from trainhouse.events import JobSpec, JobSubmitted
from trainhouse.events.model.decisions import JobQueued
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.errors import ProblemError

_QUEUED = """
SELECT source_topic, source_partition, source_offset FROM decisions_rows FINAL
WHERE job_id = {job_id:String} AND type = {type:String} ORDER BY seq, ordinal LIMIT 1
"""
_SUBMITTED = """
SELECT json FROM events_rows FINAL WHERE job_id = {job_id:String} AND type = {type:String} ORDER BY time LIMIT 1
"""


async def original_spec(here: Gateway, job_id: str) -> JobSpec:
    """The spec whole. Raises ProblemError where it is known no more, or not yet."""
    found = await here.reader.one(_SUBMITTED, {"job_id": job_id, "type": JobSubmitted.event_type})
    if found is None:
        raise ProblemError(409, "No spec", f"job {job_id} has no submission here any more; submit its spec with resume_from")
    shown = JobSubmitted.model_validate_json(found["json"]).spec
    if not shown.env:
        return shown
    place = await here.reader.one(_QUEUED, {"job_id": job_id, "type": JobQueued.event_type})
    spec = None
    if place is not None and here.kafka is not None:
        at = (str(place["source_topic"]), int(place["source_partition"]), int(place["source_offset"]))
        spec = await asyncio.to_thread(_journaled, here.kafka, at, job_id)
    if spec is None:
        raise ProblemError(409, "No spec", f"the environment of job {job_id} is not in the journal yet, or any more; submit its whole spec")
    return spec


def _journaled(kafka: KafkaSettings, at: tuple[str, int, int], job_id: str) -> JobSpec | None:
    """Returns the spec that the journal's record at a position queued under this id. Blocks. Raises BusUnavailableError."""
    from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
    from trainhouse.events.archive.errors import ArchiveError
    from trainhouse.events.archive.log import journal_reader
    from trainhouse.events.archive.reading import journal_records
    from trainhouse.events.wire.journal import read_decision, record_head
    from trainhouse.events.wire.upcast import UPCASTERS

    topic, partition, offset = at
    reader = journal_reader(kafka)
    try:
        records = journal_records(kafka, reader, topic, [partition], ObjectArchive(), {partition: offset})
        record = next(records, None)
    except ArchiveError as error:
        raise BusUnavailableError(f"{topic}-{partition}: the record at offset {offset} cannot be read: {error}") from error
    finally:
        reader.close()
    if record is None or record.offset != offset or record.value is None:
        return None
    queued = (d for d in record_head(record.value)["decisions"] if UPCASTERS.newest(d["type"]) == JobQueued.event_type)
    events = (read_decision(d) for d in queued if d["data"].get("job_id") == job_id)
    return next((event.spec for event in events if isinstance(event, JobQueued)), None)
