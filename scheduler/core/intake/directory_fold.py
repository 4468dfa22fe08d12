"""Fold of the directory's decisions into its state: the only place that changes it.

Holds: an event that changes nothing is passed over.
"""

from typing import Any, Final

from trainhouse.events import (
    CancelJob,
    ChangeJob,
    CordonNode,
    DatasetGranted,
    DatasetGrantRevoked,
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    DrainNode,
    Event,
    ForgetNodeKey,
    MovePool,
    PolicyChanged,
    PoolCreated,
    ProjectApplied,
    QuarantineNode,
    ReviewJob,
    SecretDeclared,
    SecretRemoved,
    ShardQuarantined,
    ShardReleased,
    UncordonNode,
)
from trainhouse.events.model.routing import (
    ControlGrown,
    DatasetNoted,
    EventSeen,
    JobDirected,
    JobsSettled,
    PoolRequest,
    ProjectNoted,
    RequestForwarded,
    RequestHeld,
    RequestUnheld,
)
from trainhouse.events.model.secret_names import SecretName
from trainhouse.events.wire.envelope import Origin
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.intake.bucket import take
from trainhouse.scheduler.core.intake.datasets import SIZES_SINCE
from trainhouse.scheduler.core.intake.directory_state import DirectoryState, Held
from trainhouse.scheduler.core.intake.projects import rate_of, rule_of

# The field of a routing decision that carries each kind of request.
_FIELDS: Final[dict[type[Event], str]] = {
    CancelJob: "cancel",
    ChangeJob: "change",
    PolicyChanged: "policy",
    CordonNode: "cordon",
    UncordonNode: "uncordon",
    DrainNode: "drain",
    QuarantineNode: "quarantine",
    ForgetNodeKey: "forget_key",
    ReviewJob: "review",
    MovePool: "move",
}


def fold_directory(state: DirectoryState, now_ms: int, decision: Event, level: int) -> None:
    """Applies one decision of a record at this level in place."""
    match decision:
        case EventSeen():
            _seen(state, decision)
        case PoolCreated():
            state.put_pool(decision.pool, decision.partition)
        case SecretDeclared():
            state.secrets[SecretName(decision.project, decision.name)] = decision.grants
        case SecretRemoved():
            state.secrets.pop(SecretName(decision.project, decision.name), None)
        case JobDirected():
            state.put_job(decision.admission.job_id, decision.pool, bytes.fromhex(decision.fingerprint))
            _count(state, decision.admission.spec.project, now_ms)
        case JobsSettled():
            state.settle()
        case ProjectApplied():
            state.put_project(decision)
        case ProjectNoted():
            state.put_project(decision.applied)
        case DatasetVersionPublished():
            state.datasets.put(decision.version, decision.semver, sized=level >= SIZES_SINCE)
            if decision.quarantine is not None:
                version, quarantine = decision.version, decision.quarantine
                lost = [(each.split, each.shard) for each in quarantine.lost] if level >= SIZES_SINCE else ()
                state.datasets.set_quarantine(version.dataset, version.sha256, quarantine.shards, quarantine.number, lost)
        case DatasetVersionDeprecated():
            state.datasets.deprecate(decision.dataset, decision.sha256, decision.reason)
        case ShardQuarantined() | ShardReleased():
            state.datasets.change_shard(decision, sized=level >= SIZES_SINCE)
        case DatasetGranted() | DatasetGrantRevoked():
            state.datasets.change_grant(decision)
        case DatasetNoted():
            of_version = decision.published or decision.deprecated or decision.quarantined or decision.released
            noted = of_version or decision.granted or decision.revoked
            if noted is not None:
                fold_directory(state, now_ms, noted, level)
        case ControlGrown():
            state.control_partitions = decision.partitions
        case RequestHeld():
            state.hold(decision.digest, Held(decision.event_id, decision.job_id, now_ms, held_request(decision), decision.project))
        case RequestUnheld():
            state.unhold(decision.digest)


def _seen(state: DirectoryState, d: EventSeen) -> None:
    """An event was handled. One of a journal of before says its digest alone."""
    if d.origin:
        state.origins.note(Origin.parse(d.origin))
    if d.made_at_ms is None:
        state.see(bytes.fromhex(d.digest))
    else:
        state.asked.note(d.project, d.made_at_ms, bytes.fromhex(d.digest))


def _count(state: DirectoryState, project: str, now_ms: int) -> None:
    """One more submission of a project."""
    rule = rule_of(state.projects, project)
    rate = rate_of(rule)
    if rule is None or rate is None:
        return
    after = take(rate, state.buckets.get(rule.project.name), now_ms)
    if after is not None:
        state.buckets[rule.project.name] = after


def one_of(event: CancelJob | ChangeJob | ReviewJob | PoolRequest) -> dict[str, Any]:
    """A request under the name of the field that carries it."""
    return {_FIELDS[type(event)]: event}


def request_of(decision: RequestForwarded) -> CancelJob | ChangeJob | ReviewJob | PoolRequest:
    """The one request that goes to a scheduler. Raises BrokenInvariant when there is none."""
    of_job, of_pool = decision.cancel or decision.change or decision.review, decision.policy or decision.quarantine or decision.forget_key
    found = of_job or of_pool or decision.move or decision.cordon or decision.uncordon or decision.drain
    if found is None:
        raise BrokenInvariant(f"{decision.event_type} of event {decision.event_id} carries no request")
    return found


def held_request(decision: RequestHeld) -> CancelJob | ChangeJob:
    """The one request that waits for its job. Raises BrokenInvariant when there is none."""
    found = decision.cancel or decision.change
    if found is None:
        raise BrokenInvariant(f"{decision.event_type} of event {decision.event_id} carries no request")
    return found
