"""Alerts: something that a person should look at, as long as it holds.

Holds: `key` names what an alert is about; the same rule and key fire once, and again only after they resolved.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import MOST_LABELS, CutText, Metric, TimestampMs


class Severity(StrEnum):
    """Urgency of an alert: at night, today, some time."""

    CRITICAL = "CRITICAL"
    WARNING = "WARNING"
    INFO = "INFO"


class AlertEvent(Event):
    """Common fields of alert events. `labels` are the columns that identify the case (pool, job_id, node_id …)."""

    rule: str = Field(max_length=128, description="name of the rule")
    key: str = Field(max_length=512, description="what the alert is about; a rule fires once for a key until it resolves")
    severity: Severity = Field(description="urgency")
    owner: str = Field("", max_length=128, description="who looks after it, as the rule says")
    runbook: str = Field("", max_length=1024, description="a link that says what to do")
    labels: dict[CutText, CutText] = Field(
        default_factory=dict, max_length=MOST_LABELS, description="columns that identify the case, such as pool, job_id or node_id"
    )
    summary: str = Field(max_length=2048, description="sentence for a person")
    since_ms: TimestampMs
    at_ms: TimestampMs

    def subject(self) -> str:
        return self.key or self.rule


class AlertFired(AlertEvent, type="trainhouse.alert.fired.v1"):
    """A rule holds for `key` since `since_ms`. `value` was measured, `limit` is the rule's."""

    value: Metric | None = Field(None, description="value that was measured")
    limit: Metric | None = Field(None, description="limit of the rule")


class AlertResolved(AlertEvent, type="trainhouse.alert.resolved.v1"):
    """End of an alert: its rule no longer holds for `key`."""
