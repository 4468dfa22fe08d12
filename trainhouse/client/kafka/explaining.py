"""Explanation of a waiting job, now or at a past moment, computed from the scheduler's own journal.

Holds: the answer is the result of the scheduler's own checks on the state that it had folded by then. Blocks on the brokers.
"""

from dataclasses import dataclass

from trainhouse.events.model.explanation import JobExplained
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.core.explain.node_reasons import NodeAnswer


@dataclass(frozen=True)
class Explained:
    """A job in its scheduler's hands. `answer`: why it waits, None where it does not; `nodes`: what each says, where it was asked."""

    state: str
    reason: str
    answer: JobExplained | None
    nodes: tuple[NodeAnswer, ...] = ()


def explained(kafka: KafkaSettings, job_id: str, at_ms: int, *, nodes: bool = False) -> Explained | None:
    """None: no scheduler had the job then. Raises NoSuchMomentError (before all records), JournalBrokenError, NotReachableError."""
    from trainhouse.client.kafka.present import being_moved, schedule_at
    from trainhouse.scheduler.core.explain.explainer import explain_job, explain_nodes
    from trainhouse.scheduler.core.state.transitions import state_of

    partitions = schedule_at(kafka, at_ms).partitions
    for _, folded in sorted(partitions.items()):
        record = folded.state.jobs.get(job_id)
        if record is not None:
            # An idle journal has no record for up to two minutes; time passes all the same.
            answer = explain_job(folded.state, job_id, min(at_ms, max(folded.now_ms, wall_ms())))
            asked = tuple(explain_nodes(folded.state, job_id)) if nodes and answer is not None else ()
            return Explained(str(state_of(record.phase)), record.reason, answer, asked)
    moving = being_moved((folded.state for folded in partitions.values()), job_id)
    return Explained("on its way", moving, None) if moving else None
