"""Rules over the scheduler's journal, read from its bytes alone: each returns complaints; none means that the rule holds.

Rules: records that count form one chain, and take in each input of control once; a device is in one gang at every instant; what a job's
progress is said to be was reported by its present epoch.
Holds: instants are places in the journal, so no clock decides; which records count is worked out here, by the rule that the design gives.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from tests.chaos.evidence import Evidence
from trainhouse.events.wire import topics

ALLOCATED, STOPPED, REGISTERED = "trainhouse.gang.allocated.v1", "trainhouse.attempt.stopped.v1", "trainhouse.node.registered.v1"
REPORTED, PROGRESSED = "trainhouse.attempt.progress.v1", "trainhouse.decision.job-progressed.v1"


@dataclass(frozen=True)
class Step:
    """One record that counts: its inputs and decisions as (type, data)."""

    partition: int
    seq: int
    hash: str
    previous: str
    offsets: tuple[int, ...]
    inputs: tuple[tuple[str, dict[str, Any]], ...]
    decisions: tuple[tuple[str, dict[str, Any]], ...]


def counted(evidence: Evidence) -> dict[int, list[Step]]:
    """The records that count, by partition: the first with each seq, counted from 1."""
    found: dict[int, list[Step]] = {}
    for partition, values in sorted(evidence.journal.items()):
        steps: list[Step] = []
        for value in values:
            raw = orjson.loads(value)
            if raw["seq"] == len(steps) + 1:
                steps.append(_step(partition, raw, hashlib.sha256(value).hexdigest()))
        found[partition] = steps
    return found


def one_chain(evidence: Evidence) -> Iterable[str]:
    """Each record that counts names the hash of the one before it."""
    for partition, steps in counted(evidence).items():
        for older, newer in pairwise(steps):
            if newer.previous != older.hash:
                yield f"journal {partition}: seq {newer.seq} does not follow from seq {older.seq}: its previous_hash is another"


def _step(partition: int, raw: dict[str, Any], own_hash: str) -> Step:
    offsets = tuple(i["offset"] for i in raw["inputs"] if i.get("offset") is not None)
    inputs = tuple((i["event"]["type"], i["event"].get("data") or {}) for i in raw["inputs"] if i.get("event"))
    decisions = tuple((d["type"], d["data"]) for d in raw["decisions"])
    return Step(partition, raw["seq"], own_hash, raw["previous_hash"], offsets, inputs, decisions)


def inputs_once(evidence: Evidence) -> Iterable[str]:
    """Every input of control is in one record that counts, in the order of the topic, none passed over."""
    held = {p: evidence.offsets(topics.CONTROL, p) for p in evidence.journal}
    for partition, steps in counted(evidence).items():
        taken = [offset for step in steps for offset in step.offsets]
        there = held[partition]
        if taken != there[: len(taken)]:
            wrong = next((i for i, offset in enumerate(taken) if i >= len(there) or there[i] != offset), len(there))
            yield f"journal {partition}: input {taken[wrong]} was taken where {there[wrong : wrong + 1]} was next"
        elif len(taken) < len(there):
            yield f"journal {partition}: {len(there) - len(taken)} inputs were never taken, the first is {there[len(taken)]}"


def one_gang_per_device(evidence: Evidence) -> Iterable[str]:
    """A device goes to another attempt only after the journal took in that its node is done with the older one."""
    for steps in counted(evidence).values():
        holder: dict[tuple[str, str], tuple[str, int]] = {}
        for step in steps:
            for kind, data in step.inputs:
                _free(holder, kind, data)
            for kind, data in step.decisions:
                if kind == ALLOCATED:
                    yield from _give(holder, data, step)


def _free(holder: dict[tuple[str, str], tuple[str, int]], kind: str, data: dict[str, Any]) -> None:
    if kind == STOPPED:
        gone = (data["job_id"], data["epoch"])
        freed = [place for place, attempt in holder.items() if place[0] == data["node_id"] and attempt == gone]
    elif kind == REGISTERED:
        runs = {(a["job_id"], a["epoch"]) for a in data.get("running", ())}
        freed = [place for place, attempt in holder.items() if place[0] == data["node_id"] and attempt not in runs]
    else:
        return
    for place in freed:
        del holder[place]


def _give(holder: dict[tuple[str, str], tuple[str, int]], order: dict[str, Any], step: Step) -> Iterable[str]:
    attempt = (order["job_id"], order["epoch"])
    for placement in order["placements"]:
        for device in placement["devices"]:
            place = (placement["node_id"], device)
            before = holder.get(place)
            if before is not None and before != attempt:
                told = f"given to {attempt[0]}/{attempt[1]} while {before[0]}/{before[1]} held it"
                yield f"device {place}: {told} (journal {step.partition}, seq {step.seq})"
            holder[place] = attempt


def stale_progress_is_ignored(evidence: Evidence) -> Iterable[str]:
    """A job's progress changes only by a report of its present epoch; epochs of a job grow."""
    for steps in counted(evidence).values():
        present: dict[str, int] = {}
        for step in steps:
            reported = {(data["job_id"], data["epoch"], data["step"]) for kind, data in step.inputs if kind == REPORTED}
            for kind, data in step.decisions:
                job_id = data.get("job_id", "")
                where = f"journal {step.partition}, seq {step.seq}"
                if kind == ALLOCATED:
                    if data["epoch"] <= present.get(job_id, -1):
                        yield f"job {job_id}: epoch {data['epoch']} was allocated after {present[job_id]} ({where})"
                    present[job_id] = data["epoch"]
                elif kind == PROGRESSED:
                    told = (job_id, present.get(job_id, -1), data["progress"]["step"])
                    if told not in reported:
                        yield f"job {job_id}: step {told[2]} counted as progress of epoch {told[1]}, which did not report it ({where})"
