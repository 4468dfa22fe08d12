"""How each decision of the directory changes its state: the only place where it does.

Holds: an event that changes nothing is passed over.
"""

from trainhouse.events import CancelJob, ChangeJob, Event, PoolCreated
from trainhouse.events.routing import EventSeen, JobDirected, RequestForwarded, RequestHeld, RequestUnheld
from trainhouse.scheduler.core.directory_state import DirectoryState, Held
from trainhouse.scheduler.core.errors import BrokenInvariant


def fold_directory(state: DirectoryState, now_ms: int, decision: Event) -> None:
    """Applies one decision in place."""
    match decision:
        case EventSeen():
            state.see(bytes.fromhex(decision.digest))
        case PoolCreated():
            state.put_pool(decision.pool, decision.partition)
        case JobDirected():
            state.put_job(decision.admission.job_id, decision.pool, bytes.fromhex(decision.fingerprint))
        case RequestHeld():
            state.hold(decision.digest, Held(decision.event_id, decision.job_id, now_ms, request_of(decision)))
        case RequestUnheld():
            state.unhold(decision.digest)


def request_of(decision: RequestHeld | RequestForwarded) -> CancelJob | ChangeJob:
    """The one request that a decision carries. Raises BrokenInvariant when it carries none."""
    found = decision.cancel or decision.change
    if found is None:
        raise BrokenInvariant(f"{decision.event_type} of event {decision.event_id} carries no request")
    return found
