"""Projects to `projects_rows`: every version of each, with its members, purposes and limits.

Holds: names and what belongs to them stand in lists of one length, in the order of names.
"""

from collections.abc import Iterator

from trainhouse.events.model.project import ProjectApplied
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one version of a project; nothing for other events."""
    event = envelope.event
    if not isinstance(event, ProjectApplied):
        return
    project, limits = event.project, event.project.limits
    members = sorted((project.members or {}).items())
    purposes = sorted(project.purposes.items())
    yield Row(
        "projects_rows",
        {
            "project": project.name,
            "version": event.version,
            "description": project.description,
            "by_members": int(project.members is not None),
            "member_names": [name for name, _ in members],
            "member_roles": [role.value for _, role in members],
            "purpose_names": [name for name, _ in purposes],
            "purpose_descriptions": [purpose.description for _, purpose in purposes],
            "purpose_approved_by": [purpose.approved_by for _, purpose in purposes],
            "purpose_approved_at": [clamp_ms(purpose.approved_at_ms or event.applied_at_ms) for _, purpose in purposes],
            "highest_priority": limits.highest_priority,
            "submissions_per_minute": limits.submissions_per_minute,
            "requests_per_minute": limits.requests_per_minute,
            "storage_gib": limits.storage_gib,
            "running": limits.running,
            "queued": limits.queued,
            "cost_per_month": limits.cost_per_month,
            "closed": int(project.closed),
            "user": event.user,
            "reason": event.reason,
            "applied_at": clamp_ms(event.applied_at_ms),
            "text": event.text,
        },
    )
