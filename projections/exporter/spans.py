"""Spans of a job's start, as plain values with ids that follow from what they are about.

Holds: the same job, attempt and part have the same ids for ever, so that telling twice doubles nothing; a span never ends before it begins.
Never: reads a clock; draws at random.
"""

import hashlib
import re
from dataclasses import dataclass, field

_TRACEPARENT = re.compile(r"^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-|$)")

Attributes = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class Span:
    """One span. Ids in hexadecimal, times in milliseconds since 1970; `error` says why it went wrong, '' if it did not."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ms: int
    end_ms: int
    attributes: Attributes = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Parent:
    """Parent span in a traceparent (W3C Trace Context)."""

    trace_id: str
    span_id: str
    sampled: bool


def parent_of(traceparent: str | None) -> Parent | None:
    """Reads a traceparent; None where there is none, or none that is valid."""
    found = _TRACEPARENT.match(traceparent or "")
    return Parent(found[1], found[2], bool(int(found[3], 16) & 1)) if found else None


def trace_id_of(submission_id: str) -> str:
    """The trace of a submission that named no parent."""
    return hashlib.sha256(f"trace:{submission_id}".encode()).hexdigest()[:32]


def span_id_of(job_id: str, attempt: int, part: str) -> str:
    """The id of one part of one attempt."""
    return hashlib.sha256(f"span:{job_id}:{attempt}:{part}".encode()).hexdigest()[:16]
