"""Grants of datasets to `dataset_grants`; and their changes, and jobs that were refused for want of one, to the audit.

Holds: an event that is read twice makes the same rows.
"""

from collections.abc import Iterator

from trainhouse.events import DatasetAccessRefused, DatasetGranted, DatasetGrantRevoked
from trainhouse.events.model.dataset_grant import GrantKey
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.topics import DATASETS
from trainhouse.projections.record import Record, Row, clamp_ms
from trainhouse.projections.rows.one_to_one import plain_audit


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The rows of a grant, a revocation or a refusal; nothing for other events."""
    match envelope.event:
        case DatasetGranted() as granted:
            yield _grant(granted, "granted", granted.granted_at_ms)
            yield _audit(envelope, granted, "grant dataset", granted.granted_at_ms)
        case DatasetGrantRevoked() as revoked:
            yield _grant(revoked, "revoked", revoked.revoked_at_ms)
            yield _audit(envelope, revoked, "revoke dataset grant", revoked.revoked_at_ms)
        case DatasetAccessRefused() as refused:
            about = {"kind": "refused", "action": "use dataset", "target": refused.reference, "project": refused.owner}
            by = {"sub": refused.user, "job_id": str(refused.job_id), "text": f"project {refused.project}", "reason": refused.reason}
            passed = {"passed_on_id": str(refused.submission_id)}
            yield Row("audit_rows", plain_audit(envelope, refused.refused_at_ms) | about | by | passed)


def _grant(event: DatasetGranted | DatasetGrantRevoked, fact: str, at_ms: int) -> Row:
    key = GrantKey.of(event)
    named = {"dataset": key.dataset, "sha256": key.sha256, "project": key.project, "purpose": key.purpose}
    about = {"number": event.number, "fact": fact, "owner": event.owner, "user": event.user, "reason": event.reason}
    return Row("dataset_grants_rows", named | about | {"at": clamp_ms(at_ms)})


def _audit(envelope: Envelope, event: DatasetGranted | DatasetGrantRevoked, action: str, at_ms: int) -> Row:
    about = {"kind": "accepted", "action": action, "target": GrantKey.of(event).reference, "project": event.owner, "reason": event.reason}
    by = {"sub": event.user, "topic": DATASETS, "text": f"project {event.project}, purpose {event.purpose}"}
    return Row("audit_rows", plain_audit(envelope, at_ms) | about | by)
