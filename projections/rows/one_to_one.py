"""Events that become one row each, as they are: alerts, artifacts, audit, versions of datasets, service measures.

Holds: an event that is read twice makes the same row. Rows of audit have the same columns for every kind; what a kind does not have is
empty, 0 or NULL. A public key stands beside a node's access only where its signature holds; the view decides whether it is the node's key.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Final

from trainhouse.events.model.alert import AlertFired, AlertResolved
from trainhouse.events.model.artifact import ArtifactRecorded, ArtifactStored
from trainhouse.events.model.audit import AccessEnded, AccessGranted, AccessRefused, AuditLost, RequestAccepted, TokenIssued, TokenRevoked
from trainhouse.events.model.bad_shard import ShardQuarantined, ShardReleased
from trainhouse.events.model.base import Event
from trainhouse.events.model.dataset import DatasetVersionDeprecated, DatasetVersionPublished
from trainhouse.events.model.media import MediaRecorded
from trainhouse.events.model.node_audit import NodeAccess
from trainhouse.events.model.project_document import DocumentSaved
from trainhouse.events.model.service_level import ServiceMeasured
from trainhouse.events.model.tracking import ArtifactLogged, TraceRecorded
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
_LAST_OFFSET = 2**63 - 1
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


def is_own_trace(event: Event) -> bool:
    """Returns whether a trace, or media, is its rank's and its job's; True for other events. A rank names it, and might name another's."""
    return not isinstance(event, TraceRecorded | MediaRecorded) or event.is_of_rank()


def artifacts(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one artifact; nothing for other events. The newest record of a path counts; a deleted one stays as a row that says so.

    Traces and media are of another topic: their version is below that of each record that deletes them.
    """
    event = envelope.event
    if not isinstance(event, ArtifactLogged | TraceRecorded | MediaRecorded) or not is_own_trace(event):
        return
    at = clamp_ms(event.at_ms)
    yield Row(
        "artifacts_rows",
        {
            "job_id": str(event.job_id),
            "path": event.path,
            # The order of the partition, not the writers' clocks: the newest word is the last one.
            "version": record.offset + 1 if isinstance(event, ArtifactLogged) else 0,
            "at": at,
            "kind": PurePosixPath(event.path).suffix.lstrip(".").lower()[:32],
            "uri": event.uri,
            "sha256": event.sha256,
            "size_bytes": event.size_bytes,
            "deleted": int(isinstance(event, ArtifactLogged) and event.deleted),
        },
    )


def artifact_versions(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of a version of an artifact under its name, or of a job's reading one; nothing for other events."""
    event = envelope.event
    if not isinstance(event, ArtifactStored | ArtifactRecorded):
        return
    action = event.action if isinstance(event, ArtifactRecorded) else "stored"
    job_owner = "used" if action == "used" else "job"
    at, stored = clamp_ms(event.at_ms), event if isinstance(event, ArtifactStored) else None
    job_id, project = str(event.job_id or ""), stored.project if stored else ""
    yield Row(
        "artifact_versions_rows",
        {
            "name": str(event.name),
            "sha256": event.sha256,
            "owner": f"{job_owner}:{job_id}" if job_id else f"project:{project}",
            "version": at,
            "job_id": job_id,
            "action": action,
            "project": project,
            "kind": str(event.kind),
            "size_bytes": event.bytes,
            "files": event.files,
            "created_by": stored.user if stored else "",
            "at": at,
            "deleted": int(stored is not None and stored.deleted),
        },
    )


def documents(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of a version of a report or a view; nothing for other events. The first record of a version counts."""
    event = envelope.event
    if not isinstance(event, DocumentSaved):
        return
    yield Row(
        "documents_rows",
        {
            "project": event.project,
            "kind": event.kind.value,
            "name": event.name,
            "version": event.version,
            "earliest": _LAST_OFFSET - record.offset,
            "event_id": str(envelope.id),
            "content": event.content,
            "note": event.note,
            "deleted": int(event.deleted),
            "saved_by": event.user,
            "at": clamp_ms(event.at_ms),
        },
    )


def audit(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one event of audit; nothing for other events."""
    event = envelope.event
    if isinstance(event, Audit):
        yield Row("audit_rows", _audit_values(envelope, event) | _signed_by_node(event, record))


def plain_audit(envelope: Envelope, at_ms: int) -> dict[str, Any]:
    """Columns of an access, with nothing in those that its kind does not have."""
    return {
        "at": clamp_ms(at_ms),
        "event_id": str(envelope.id),
        **dict.fromkeys(_AUDIT_TEXTS, ""),
        "done_by": "",
        "status": None,
        "count": 1,
        "since": clamp_ms(at_ms),
        "rows": None,
        "bytes": 0,
        "took_ms": None,
        "passed_on_id": "",
        "roles": [],
        "projects": [],
        "expires_at": None,
        "attempt": None,
        "ranks": [],
        "exit_code": None,
        "signed_by": "",
    }


def _audit_values(envelope: Envelope, event: Audit) -> dict[str, Any]:
    issued = event if isinstance(event, TokenIssued) else None
    return {
        "at": clamp_ms(event.at_ms),
        "event_id": str(envelope.id),
        "kind": event.outcome.value if isinstance(event, NodeAccess) else _AUDIT_KINDS[type(event)],
        **{name: str(getattr(event, name, "") or "") for name in _AUDIT_TEXTS},
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


_DATASETS: Final = "dataset_versions_rows"
_DATASET_LISTS: Final = (
    "split_names",
    "split_samples",
    "split_bytes",
    "split_shards",
    "purposes",
    "field_names",
    "field_types",
    "field_optional",
)
_DATASET_TEXTS: Final = ("semver", "project", "schema_hash", "split_config_hash", "licence")
_NO_FACTS: Final[dict[str, object]] = {
    **{name: [] for name in _DATASET_LISTS},
    **dict.fromkeys(_DATASET_TEXTS, ""),
    "row_count": 0,
    "bytes": 0,
}


def dataset_versions(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one publication or deprecation; nothing for other events."""
    match envelope.event:
        case DatasetVersionPublished() as published:
            yield Row(_DATASETS, _version_published(published))
        case DatasetVersionDeprecated() as deprecated:
            about = {"user": deprecated.user, "reason": deprecated.reason, "at": clamp_ms(deprecated.deprecated_at_ms)}
            yield Row(_DATASETS, _NO_FACTS | {"dataset": deprecated.dataset, "sha256": deprecated.sha256, "fact": "deprecated"} | about)


def dataset_shards(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one quarantine or release; nothing for other events."""
    match envelope.event:
        case ShardQuarantined() as event:
            e = event.evidence
            found = {"split": event.split or "", "fault": str(e.fault), "sample": e.sample, "expected": e.expected, "seen": e.seen}
            by = {"job_id": e.job_id or "", "rank": e.rank, "node_id": e.node_id or "", "user": "", "reason": ""}
            yield Row("dataset_shards_rows", _shard(event, "quarantined", event.quarantined_at_ms) | found | by)
        case ShardReleased() as event:
            found = dict.fromkeys(("split", "fault", "sample", "expected", "seen", "job_id", "node_id"), "")
            by = {"rank": None, "user": event.user, "reason": event.reason}
            yield Row("dataset_shards_rows", _shard(event, "released", event.released_at_ms) | found | by)


def _shard(event: ShardQuarantined | ShardReleased, fact: str, at_ms: int) -> dict[str, object]:
    return {
        "dataset": event.dataset,
        "sha256": event.sha256,
        "shard": event.shard,
        "fact": fact,
        "number": event.number,
        "at": clamp_ms(at_ms),
    }


def _version_published(event: DatasetVersionPublished) -> dict[str, object]:
    version = event.version
    splits = sorted(version.splits.items())
    return {
        "dataset": version.dataset,
        "sha256": version.sha256,
        "fact": "published",
        "semver": event.semver or "",
        "project": version.project,
        "schema_hash": version.schema_hash,
        "split_config_hash": version.split_config_hash,
        "split_names": [name for name, _ in splits],
        "split_samples": [split.samples for _, split in splits],
        "split_bytes": [split.bytes for _, split in splits],
        "split_shards": [split.shards for _, split in splits],
        "row_count": version.row_count,
        "bytes": version.bytes,
        "licence": version.licence,
        "purposes": list(version.purposes),
        "field_names": [field.name for field in version.fields],
        "field_types": [field.type for field in version.fields],
        "field_optional": [int(field.optional) for field in version.fields],
        "user": event.created_by,
        "reason": "",
        "at": clamp_ms(event.published_at_ms),
    }
