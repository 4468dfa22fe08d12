"""Failure section of a pool's policy: detection of failures, recovery from them, and their attribution.

Holds: every number has a default that serves a usual fleet; all of it is data, so `trainhouse policy apply` changes it and replay has it.
Of failures the last 32 are remembered (`evidence`): a limit beyond that is never reached.
Never: decides anything (`scheduler.core` does).
"""

import re
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from trainhouse.events.model.base import Model
from trainhouse.events.model.labels import Label
from trainhouse.events.model.safe_regex import costly
from trainhouse.events.model.verdict import FailureCategory


class Detection(Model):
    """Thresholds at which silence, slowness or errors become a verdict.

    A gang hangs when all of `hang_factor`, `longest_factor` and `hang_floor_s` are exceeded, and `live_floor_s` too as long as all its
    ranks on a node show life: they may wait for a rank on another one, or do something unannounced. A rank that never reported is judged
    only where `silent_start_limit_s` is given, for pools whose programs all use a session: any other program that trains well reports
    nothing either. Throttling and a low clock degrade a device as errors do.
    """

    suspected_beats: float = Field(5, gt=0, le=1000, description="heartbeat intervals of silence after which a node is suspected")
    lost_beats: float = Field(15, gt=0, le=10_000, description="heartbeat intervals of silence after which a node is lost")
    hang_factor: float = Field(3.0, ge=1, le=1000, description="multiple of the gang's p99 step time without a step, after which it hangs")
    longest_factor: float = Field(1.5, ge=0, le=100, description="multiple of its longest step ever that must have passed too")
    hang_floor_s: float = Field(5.0, ge=0, le=86_400, description="seconds that must have passed too")
    live_floor_s: float = Field(30.0, ge=0, le=86_400, description="seconds that must have passed while all its ranks on a node show life")
    start_limit_s: float = Field(
        1800.0, gt=0, le=86_400, description="seconds before its first step, after which a gang with a session hangs"
    )
    silent_start_limit_s: float | None = Field(
        None,
        gt=0,
        le=604_800,
        description="the same for ranks that never report; default: no limit, since programs without a session never do",
    )
    save_limit_s: float = Field(900.0, gt=0, le=86_400, description="seconds of saving, after which it hangs")
    straggler_slowdown: float = Field(1.3, gt=1, le=1000, description="multiple of the fastest rank's own work that makes a straggler")
    straggler_after_s: float = Field(30.0, ge=0, le=86_400, description="seconds for which it must have been so slow")
    ecc_errors: int = Field(
        1, ge=1, le=1_000_000, description="new uncorrected memory errors within `device_window_s` that degrade a device"
    )
    device_window_s: float = Field(
        60.0, gt=0, le=86_400, description="seconds in which errors are counted, and for which throttling or a low clock must last"
    )
    clock_share: float = Field(0.7, gt=0, le=1, description="share of its best clock, below which a device is degraded")
    data_wait_share: float = Field(0.3, gt=0, le=1, description="share of `stall_window_s` spent waiting for data that is a stall")
    store_stall_share: float = Field(
        0.2, gt=0, le=1, description="share of `stall_window_s` in which saves hold training up that is a stall"
    )
    stall_window_s: float = Field(60.0, gt=0, le=86_400, description="seconds over which both shares are taken")


class Recovery(Model):
    """Recovery from a failure: retries, survivors and moves."""

    backoff_s: float = Field(
        0.5, ge=0, le=3600, description="seconds before the first retry; doubled for each attempt in a row that made no progress"
    )
    max_backoff_s: float = Field(30.0, ge=0, le=86_400, description="most seconds before a retry")
    same_failures: int = Field(
        2, ge=1, le=1000, description="unknown failures in a row with the same fingerprint that count as the job's own"
    )
    prefer_same_nodes: bool = Field(
        True, description="whether a restart goes to the same nodes, where its warm processes are, if they are healthy"
    )
    survivors_save_s: float = Field(30.0, ge=0, le=3600, description="seconds in which ranks that are left may save before a restart")
    move_deadline_s: float = Field(120.0, ge=0, le=86_400, description="seconds in which a gang leaves a degraded device")
    forget_after_h: float = Field(
        168.0, gt=0, le=24 * 3650, description="hours after which a lost node that nothing names is forgotten, unless a person closed it"
    )


class BlameRule(Model):
    """Pattern of an output line that attributes a failure. Rules are tried in order, those of the policy before the shipped ones."""

    name: Label = Field(description="name of the rule, shown with the failures that it decided")
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=1000)] = Field(
        description="regular expression (Python's re) for one line of output"
    )
    category: FailureCategory = Field(description="whose fault such a failure is")
    mine: bool = Field(False, description="whether another attempt would fail in the same way, so that none is made")
    summary: str = Field("", max_length=512, description="sentence for people; default: the line itself")

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}; see Python's re") from error
        why = costly(value)
        if why:
            raise ValueError(
                f"{value!r} could take very long on some line: {why}; write it with fewer repeats, or bounded ones such as .{{0,200}}"
            )
        return value


class Blame(Model):
    """Rules of this pool, and what happens to a node that is blamed too often.

    After `quarantine_after` failures blamed on it or its devices within `window_h` it is quarantined, asked for a self test
    `probe_after_s` later, and let back when it passes; a failed one is repeated after twice as long, at most `max_probes` times.
    """

    rules: tuple[BlameRule, ...] = Field((), max_length=1000, description="rules of this pool, tried before the shipped ones")
    quarantine_after: int = Field(
        3, ge=1, le=1000, description="failures blamed on a node or its devices within `window_h`, after which it is quarantined"
    )
    window_h: float = Field(24.0, gt=0, le=24 * 365, description="hours in which they are counted")
    probe_after_s: float = Field(60.0, ge=0, le=86_400, description="seconds until its self test; doubled after each one that failed")
    max_probes: int = Field(5, ge=0, le=100, description="most self tests; then a person has to open it")


class Failures(Model):
    """Failure section of a policy."""

    detection: Detection = Field(Detection(), description="thresholds at which silence, slowness or errors become a verdict")
    recovery: Recovery = Field(Recovery(), description="retries, survivors and moves")
    blame: Blame = Field(Blame(), description="rules of blame, and quarantine")
