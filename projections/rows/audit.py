"""Events of audit to `audit`: who asked what of the gateway and got which answer, and tokens that were issued or revoked.

Holds: the same columns for every kind; what a kind does not have is empty or NULL.
"""

from collections.abc import Iterator
from typing import Any

from trainhouse.events.audit import AccessRefused, RequestAccepted, TokenIssued, TokenRevoked
from trainhouse.events.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, optional_ms

_KINDS: dict[type, str] = {AccessRefused: "refused", RequestAccepted: "accepted", TokenIssued: "issued", TokenRevoked: "revoked"}
_TEXTS = ("action", "target", "project", "sub", "token_id", "address", "reason", "topic")


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one event of audit; nothing for other events."""
    event = envelope.event
    if isinstance(event, AccessRefused | RequestAccepted | TokenIssued | TokenRevoked):
        yield Row("audit_rows", _values(envelope, event))


def _values(envelope: Envelope, event: AccessRefused | RequestAccepted | TokenIssued | TokenRevoked) -> dict[str, Any]:
    refused = event if isinstance(event, AccessRefused) else None
    issued = event if isinstance(event, TokenIssued) else None
    return {
        "at": clamp_ms(event.at_ms),
        "event_id": str(envelope.id),
        "kind": _KINDS[type(event)],
        **{name: str(getattr(event, name, "")) for name in _TEXTS},
        "done_by": str(getattr(event, "by", "")),
        "status": refused.status if refused else None,
        "count": refused.count if refused else 1,
        "since": clamp_ms(refused.since_ms if refused else event.at_ms),
        "passed_on_id": event.event_id if isinstance(event, RequestAccepted) else "",
        "roles": list(issued.roles) if issued else [],
        "projects": list(issued.projects) if issued else [],
        "expires_at": optional_ms(issued.expires_at_ms) if issued else None,
    }
