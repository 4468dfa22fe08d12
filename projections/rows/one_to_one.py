"""Events that become one row each, as they are: alerts, artifacts, audit, service measures.

Holds: an event that is read twice makes the same row. Rows of audit have the same columns for every kind; what a kind does not have is
empty, 0 or NULL. A public key stands beside a node's access only where its signature holds; the view decides whether it is the node's key.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from trainhouse.events.model.alert import AlertFired, AlertResolved
from trainhouse.events.model.audit import AccessEnded, AccessGranted, AccessRefused, AuditLost, RequestAccepted, TokenIssued, TokenRevoked
from trainhouse.events.model.node_audit import NodeAccess
from trainhouse.events.model.service_level import ServiceMeasured
from trainhouse.events.model.tracking import ArtifactLogged
from trainhouse.events.security.signing import signature_of
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, optional_ms

Audit = AccessRefused | AccessGranted | AccessEnded | RequestAccepted | AuditLost | TokenIssued | TokenRevoked | NodeAccess

_AUDIT_KINDS: dict[type, str] = {
    AccessRefused: "refused",
    AccessGranted: "granted",
    AccessEnded: "ended",
    RequestAccepted: "accepted",
    AuditLost: "lost",
    TokenIssued: "issued",
    TokenRevoked: "revoked",
}
_AUDIT_TEXTS = (
    *("action", "target", "project", "sub", "token_id", "address", "reason", "topic"),
    *("access", "access_id", "session_id", "text", "text_sha256", "node_id", "job_id"),
)


def alerts(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The fact of one alert, named by (rule, key, since); nothing for other events."""
    event = envelope.event
    if not isinstance(event, AlertFired | AlertResolved):
        return
    fired = isinstance(event, AlertFired)
    yield Row(
        "alerts_rows",
        {
            "rule": event.rule,
            "key": event.key,
            "since": clamp_ms(event.since_ms),
            "fact": "fired" if fired else "resolved",
            "at": clamp_ms(event.at_ms),
            "event_id": str(envelope.id),
            "severity": event.severity.value,
            "owner": event.owner,
            "runbook": event.runbook,
            "labels": event.labels,
            "summary": event.summary,
            "value": event.value if isinstance(event, AlertFired) else None,
            "limit": event.limit if isinstance(event, AlertFired) else None,
        },
    )


def artifacts(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one artifact; nothing for other events. The newest record of a path counts; a deleted one stays as a row that says so."""
    event = envelope.event
    if not isinstance(event, ArtifactLogged):
        return
    at = clamp_ms(event.at_ms)
    yield Row(
        "artifacts_rows",
        {
            "job_id": str(event.job_id),
            "path": event.path,
            # The order of the partition, not the writers' clocks: the newest word is the last one.
            "version": record.offset + 1,
            "at": at,
            "kind": PurePosixPath(event.path).suffix.lstrip(".").lower()[:32],
            "uri": event.uri,
            "sha256": event.sha256,
            "size_bytes": event.size_bytes,
            "deleted": int(event.deleted),
        },
    )


def audit(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one event of audit; nothing for other events."""
    event = envelope.event
    if isinstance(event, Audit):
        yield Row("audit_rows", _audit_values(envelope, event) | _signed_by_node(event, record))


def _audit_values(envelope: Envelope, event: Audit) -> dict[str, Any]:
    issued = event if isinstance(event, TokenIssued) else None
    return {
        "at": clamp_ms(event.at_ms),
        "event_id": str(envelope.id),
        "kind": event.outcome.value if isinstance(event, NodeAccess) else _AUDIT_KINDS[type(event)],
        **{name: str(getattr(event, name, "")) for name in _AUDIT_TEXTS},
        **({"target": event.source} if isinstance(event, AuditLost) else {}),
        "done_by": str(getattr(event, "by", "")),
        "status": getattr(event, "status", None),
        "count": getattr(event, "count", 1),
        "since": clamp_ms(getattr(event, "since_ms", event.at_ms)),
        "rows": getattr(event, "rows", None),
        "bytes": getattr(event, "size_bytes", 0),
        "took_ms": getattr(event, "took_ms", None),
        "passed_on_id": event.event_id if isinstance(event, RequestAccepted) else "",
        "roles": list(issued.roles) if issued else [],
        "projects": list(issued.projects) if issued else [],
        "expires_at": optional_ms(issued.expires_at_ms) if issued else None,
    }


def _signed_by_node(event: Audit, record: Record) -> dict[str, Any]:
    access = event if isinstance(event, NodeAccess) else None
    signature = signature_of(record.headers) if access else None
    holds = signature is not None and signature.holds(record.topic, record.value or b"")
    return {
        "attempt": access.attempt if access else None,
        "ranks": list(access.ranks) if access else [],
        "exit_code": access.exit_code if access else None,
        "signed_by": signature.public_key if signature is not None and holds else "",
    }


def service_measures(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one measurement, named by its source and span; nothing for other events."""
    event = envelope.event
    if isinstance(event, ServiceMeasured):
        values = event.model_dump(exclude={"since_ms", "at_ms"})
        yield Row("service_measures_rows", values | {"since": clamp_ms(event.since_ms), "at": clamp_ms(event.at_ms)})
