"""Events of audit to `audit`: who asked what and got which answer, at the gateway and on nodes, and tokens that were issued or revoked.

Holds: the same columns for every kind; what a kind does not have is empty, 0 or NULL. A key stands beside what nodes tell only where its
signature holds; whether it is the node's, the view says.
"""

from collections.abc import Iterator
from typing import Any

from trainhouse.events.audit import AccessEnded, AccessGranted, AccessRefused, AuditLost, RequestAccepted, TokenIssued, TokenRevoked
from trainhouse.events.envelope import Envelope
from trainhouse.events.node_audit import NodeAccess
from trainhouse.events.signing import signature_of
from trainhouse.projections.record import Record, Row, clamp_ms, optional_ms

Audit = AccessRefused | AccessGranted | AccessEnded | RequestAccepted | AuditLost | TokenIssued | TokenRevoked | NodeAccess

_KINDS: dict[type, str] = {
    AccessRefused: "refused",
    AccessGranted: "granted",
    AccessEnded: "ended",
    RequestAccepted: "accepted",
    AuditLost: "lost",
    TokenIssued: "issued",
    TokenRevoked: "revoked",
}
_TEXTS = (
    *("action", "target", "project", "sub", "token_id", "address", "reason", "topic"),
    *("access", "access_id", "session_id", "text", "text_sha256", "node_id", "job_id"),
)


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one event of audit; nothing for other events."""
    event = envelope.event
    if isinstance(event, Audit):
        yield Row("audit_rows", _values(envelope, event) | _of_node(event, record))


def _values(envelope: Envelope, event: Audit) -> dict[str, Any]:
    issued = event if isinstance(event, TokenIssued) else None
    return {
        "at": clamp_ms(event.at_ms),
        "event_id": str(envelope.id),
        "kind": event.outcome.value if isinstance(event, NodeAccess) else _KINDS[type(event)],
        **{name: str(getattr(event, name, "")) for name in _TEXTS},
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


def _of_node(event: Audit, record: Record) -> dict[str, Any]:
    told = event if isinstance(event, NodeAccess) else None
    signature = signature_of(record.headers) if told else None
    holds = signature is not None and signature.holds(record.topic, record.value or b"")
    return {
        "attempt": told.attempt if told else None,
        "ranks": list(told.ranks) if told else [],
        "exit_code": told.exit_code if told else None,
        "signed_by": signature.public_key if signature is not None and holds else "",
    }
