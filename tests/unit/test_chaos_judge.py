"""The chaos judge can complain: each rule is shown evidence that holds, and the same evidence with one thing wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.chaos import judge
from tests.chaos.evidence import Evidence, Record
from trainhouse.events import (
    AttemptStopped,
    CheckpointCompleted,
    Event,
    GangAllocated,
    JobStatus,
    JobSubmitted,
    LogLines,
    Order,
    StepMetrics,
    envelope_of,
    topics,
)

SPEC = {"runtime": {"command": ["true"]}}
IDS = {"job_id": "j", "attempt": 0, "epoch": 1}


def evidence(*told: tuple[str, Event, Order | None], source: str = "trainhouse/schedule") -> Evidence:
    """Records one millisecond apart."""
    found = Evidence()
    for at_ms, (topic, event, order) in enumerate(told):
        envelope = envelope_of(event, id=f"e-{at_ms}", source=source, now_ms=at_ms, order=order)
        found.records[topic].append(Record(topic, 0, at_ms, at_ms, envelope))
    return found


def status(state: str, seq: int) -> tuple[str, Event, Order | None]:
    return topics.STATUS, JobStatus.model_validate({"job_id": "j", "status_seq": seq, "state": state}), Order(0, seq, 0)


def submitted() -> tuple[str, Event, Order | None]:
    return topics.JOBS, JobSubmitted.model_validate({"job_id": "j", "spec": SPEC}), None


def allocated(job: str, epoch: int, seq: int) -> tuple[str, Event, Order | None]:
    place = {"node_id": "n", "boot_id": "b", "address": "a", "first_rank": 0, "devices": ["d"]}
    fields = {"pool": "p", "spec": SPEC, "spec_sha256": "s", "placements": [place], "master_address": "a", "master_port": 1}
    return topics.ALLOCATIONS, GangAllocated.model_validate(fields | {"job_id": job, "attempt": 0, "epoch": epoch}), Order(0, seq, 0)


def complaints(found: Any) -> list[str]:
    return list(found)


def test_a_job_ends_once_and_its_statuses_count_upwards() -> None:
    assert not complaints(judge.final_states(evidence(submitted(), status("PENDING", 0), status("SUCCEEDED", 1))))
    assert "missing" in complaints(judge.final_states(evidence(submitted())))[0]
    assert "not a final one" in complaints(judge.final_states(evidence(submitted(), status("RUNNING", 0))))[0]
    after = evidence(submitted(), status("SUCCEEDED", 0), status("RUNNING", 1), status("FAILED", 2))
    assert "follows a final one" in complaints(judge.final_states(after))[0]
    back = evidence(submitted(), status("RUNNING", 5), status("SUCCEEDED", 4))
    assert "status_seq 4 follows 5" in complaints(judge.final_states(back))[0]


def test_a_doubled_or_late_effect_is_seen() -> None:
    assert not complaints(judge.effects_once(evidence(status("PENDING", 1), status("RUNNING", 2))))
    for wrong in (1, 2):
        assert "follows" in complaints(judge.effects_once(evidence(status("PENDING", 2), status("RUNNING", wrong))))[0]


def test_a_device_in_two_gangs_is_seen() -> None:
    stopped = AttemptStopped.model_validate(IDS | {"node_id": "n", "pool": "p", "boot_id": "b", "stopped_at_ms": 1})
    given_back = evidence(allocated("j", 1, 1), (topics.CONTROL, stopped, None), allocated("other", 1, 2))
    assert not complaints(judge.one_gang_per_device(given_back))
    assert "while j/1 held it" in complaints(judge.one_gang_per_device(evidence(allocated("j", 1, 1), allocated("other", 1, 2))))[0]


def metrics(*points: tuple[int, int]) -> tuple[str, Event, Order | None]:
    """Points as (byte offset, step)."""
    fields = {"rank": 0, "node_id": "n", "start": 0, "end": 100, "offsets": [p[0] for p in points], "steps": [p[1] for p in points]}
    fields |= {"times_ms": [1] * len(points), "metrics": {"loss": [1.0] * len(points)}}
    return topics.METRICS, StepMetrics.model_validate(IDS | fields), None


def test_a_lost_doubled_or_invented_point_is_seen(tmp_path: Path) -> None:
    spool = tmp_path / "j" / "1" / "rank-0" / "spool.jsonl"
    spool.parent.mkdir(parents=True)
    line = b'["m",0,1,{"loss":1.0}]\n'
    spool.write_bytes(line + line.replace(b'"m",0', b'"m",1') + b'["m",2,1,{"lo')
    second = len(line)
    whole = evidence(metrics((0, 0), (second, 1)), metrics((second, 1)))
    assert not complaints(judge.spools_whole(whole, tmp_path)), "a repeat that says the same is trimmed"
    assert judge.points_per_rank(whole) == {("j", 1, 0, "loss"): 2}
    assert "1 points lost" in complaints(judge.spools_whole(evidence(metrics((0, 0))), tmp_path))[0]
    assert "1 invented" in complaints(judge.spools_whole(evidence(metrics((0, 0), (second, 1), (90, 2))), tmp_path))[0]
    twice = evidence(metrics((0, 0), (second, 1)), metrics((second, 7)))
    assert "two different points" in complaints(judge.spools_whole(twice, tmp_path))[0]


def test_a_gap_in_the_logs_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "j" / "1" / "rank-0" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 30)

    def lines(start: int, end: int) -> tuple[str, Event, Order | None]:
        fields = {"rank": 0, "node_id": "n", "stream": "stdout", "lines": ["x"], "offsets": [start], "read_at_ms": 1}
        return topics.LOGS, LogLines.model_validate(IDS | fields | {"start": start, "end": end}), None

    assert not complaints(judge.logs_whole(evidence(lines(0, 20), lines(10, 30)), tmp_path))
    assert "bytes 10 to 20" in complaints(judge.logs_whole(evidence(lines(0, 10), lines(20, 30)), tmp_path))[0]
    assert "10 of 30 bytes" in complaints(judge.logs_whole(evidence(lines(0, 10)), tmp_path))[0]


def commit(n: int, epoch: int, step: int) -> tuple[str, Event, Order | None]:
    fields = {"commit": n, "step": step, "uri": f"s3://b/{n}", "bytes_total": 1, "bytes_new": 1, "at_ms": 1}
    return topics.CHECKPOINTS, CheckpointCompleted.model_validate(IDS | fields | {"epoch": epoch}), None


def test_a_lost_stale_or_contradictory_checkpoint_is_seen() -> None:
    good = evidence(commit(1, 1, 10), commit(2, 2, 20), commit(1, 1, 10))
    assert not complaints(judge.checkpoints_stand(good, lambda uri: True))
    assert "has no manifest" in complaints(judge.checkpoints_stand(good, lambda uri: uri != "s3://b/2"))[0]
    assert "step 10 and step 11" in complaints(judge.checkpoints_stand(evidence(commit(1, 1, 10), commit(1, 1, 11)), lambda uri: True))[0]
    stale = evidence(commit(1, 2, 10), commit(2, 1, 20))
    assert "epoch 1 follows commit 1 of epoch 2" in complaints(judge.checkpoints_stand(stale, lambda uri: True))[0]
