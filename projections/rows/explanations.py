"""JobExplained to `explanations`: why each job waited, and since when that was the answer.

Holds: (job, time) names an answer, so one that is sent again is the same row.
"""

from collections.abc import Iterator

from trainhouse.events.model.explanation import JobExplained
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, optional_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one answer; nothing for other events."""
    event = envelope.event
    if not isinstance(event, JobExplained):
        return
    score = event.score
    yield Row(
        "explanations_rows",
        {
            "job_id": str(event.job_id),
            "at": clamp_ms(event.at_ms),
            "pool": str(event.pool),
            "team": event.team,
            "place": event.place,
            "waiting": event.waiting,
            "waiting_since": clamp_ms(event.waiting_since_ms),
            "needs": event.needs,
            "obstacle": event.obstacle.value,
            "text": event.text,
            "refusals": [r.text for r in event.refusals],
            "unblock": list(event.unblock),
            "score": score.total if score else None,
            "score_priority": score.priority if score else None,
            "score_wait_bonus": score.wait_bonus if score else None,
            "score_over_share_penalty": score.over_share_penalty if score else None,
            "reserved_start": optional_ms(event.reserved_start_ms),
            "eta": optional_ms(event.eta_ms),
            "eta_from": event.eta_from,
            "json": event.model_dump_json(),
        },
    )
