"""The chaos judge can complain: each rule is shown evidence that holds, and the same evidence with one thing wrong."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson

from tests.chaos import judge, judge_journal, judge_store
from tests.chaos.evidence import Evidence, Record, Stored
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
)
from trainhouse.events.wire import topics

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


def test_a_stale_or_contradictory_commit_is_seen() -> None:
    assert not complaints(judge.commits_agree(evidence(commit(1, 1, 10), commit(2, 2, 20), commit(1, 1, 10))))
    assert "step 10 and step 11" in complaints(judge.commits_agree(evidence(commit(1, 1, 10), commit(1, 1, 11))))[0]
    stale = evidence(commit(1, 2, 10), commit(2, 1, 20))
    assert "epoch 1 follows commit 1 of epoch 2" in complaints(judge.commits_agree(stale))[0]


def test_a_step_that_is_missing_or_doubled_on_the_topic_is_seen() -> None:
    assert not complaints(judge.steps_without_gap(evidence(metrics((0, 3), (9, 4)), metrics((9, 4), (18, 5))), ["j"]))
    assert "of step 5 follows that of step 3" in complaints(judge.steps_without_gap(evidence(metrics((0, 3), (18, 5))), ["j"]))[0]
    assert "of step 3 follows that of step 3" in complaints(judge.steps_without_gap(evidence(metrics((0, 3), (18, 3))), ["j"]))[0]
    assert not complaints(judge.steps_without_gap(evidence(metrics((0, 3), (18, 5))), ["another"]))


def stored(*entries: dict[str, Any], chunks: tuple[str, ...] = ("c",)) -> Evidence:
    """The chain of job j in a store, and allocations of its epochs 1 and 2."""
    found = evidence(allocated("j", 1, 1), allocated("j", 2, 2))
    found.stored = Stored({"j": {n: {"step": 10, "chunks": []} | entry for n, entry in enumerate(entries)}}, frozenset(chunks))
    return found


def entry(kind: str, epoch: int, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "epoch": epoch} | more


def test_a_commit_of_one_who_has_not_the_chain_is_seen() -> None:
    good = (entry("claim", 1), entry("checkpoint", 1), entry("pruned", 1), entry("claim", 2), entry("claim", 2), entry("checkpoint", 2))
    assert not complaints(judge_store.one_committer(stored(*good)))
    assert "epoch 2 had the chain" in complaints(judge_store.one_committer(stored(entry("claim", 2), entry("checkpoint", 1))))[0]
    unclaimed = stored(entry("claim", 1), entry("checkpoint", 2))
    assert "epoch 1 had the chain" in complaints(judge_store.one_committer(unclaimed))[0]
    assert "after one of epoch 2" in complaints(judge_store.one_committer(stored(entry("claim", 2), entry("claim", 1))))[0]
    holes = stored(entry("claim", 1), entry("checkpoint", 1), entry("checkpoint", 1))
    del holes.stored.chains["j"][1]
    assert "holes" in complaints(judge_store.one_committer(holes))[0]


def test_an_epoch_in_the_chain_that_nobody_allocated_is_seen() -> None:
    assert not complaints(judge_store.epochs_were_allocated(stored(entry("claim", 1), entry("claim", 2))))
    assert "epoch 3" in complaints(judge_store.epochs_were_allocated(stored(entry("claim", 3))))[0]


def test_a_checkpoint_that_was_lost_altered_or_stripped_is_seen() -> None:
    def told(n: int, epoch: int, step: int, *entries: dict[str, Any], chunks: tuple[str, ...] = ("c",)) -> list[str]:
        found = stored(*entries, chunks=chunks)
        found.records |= evidence(commit(n, epoch, step)).records
        return complaints(judge_store.checkpoints_whole(found))

    whole = entry("checkpoint", 1, chunks=[{"sha256": "c"}])
    assert not told(1, 1, 10, entry("claim", 1), whole)
    assert not told(1, 1, 10, entry("claim", 1), entry("pruned", 1)), "retention may take it"
    assert "has nothing there" in told(1, 1, 10, entry("claim", 1))[0]
    assert "has a claim there" in told(0, 1, 10, entry("claim", 1))[0]
    assert "it is epoch 1, step 10" in told(1, 1, 11, entry("claim", 1), whole)[0]
    assert "it is epoch 1, step 10" in told(1, 2, 10, entry("claim", 1), whole)[0]
    assert "1 chunks that are not in the store" in told(1, 1, 10, entry("claim", 1), whole, chunks=("d",))[0]


def order(job: str, epoch: int, device: str = "d") -> tuple[str, dict[str, Any]]:
    places = [{"node_id": "n", "devices": [device]}]
    return judge_journal.ALLOCATED, {"job_id": job, "epoch": epoch, "placements": places}


def says(kind: str, **data: Any) -> tuple[str, dict[str, Any]]:
    return kind, data


def journal(*records: tuple[list[tuple[str, dict[str, Any]]], list[tuple[str, dict[str, Any]]]], control: int | None = None) -> Evidence:
    """Records of (inputs, decisions) in a chain, and a topic of control that holds what they took in (or so many records)."""
    values: list[bytes] = []
    offset = 0
    for seq, (inputs, decisions) in enumerate(records, 1):
        taken = [{"offset": offset + n, "event": {"type": kind, "data": data}} for n, (kind, data) in enumerate(inputs)]
        offset += len(inputs)
        previous = hashlib.sha256(values[-1]).hexdigest() if values else "0" * 64
        decided = [{"type": kind, "data": data} for kind, data in decisions]
        values.append(orjson.dumps({"seq": seq, "previous_hash": previous, "inputs": taken, "decisions": decided}))
    stopped = AttemptStopped.model_validate(IDS | {"node_id": "n", "pool": "p", "boot_id": "b", "stopped_at_ms": 1})
    found = evidence(*[(topics.CONTROL, stopped, None)] * (offset if control is None else control))
    found.journal[0] = values
    return found


STOPPED = says(judge_journal.STOPPED, node_id="n", job_id="j", epoch=1)
GIVEN = ([], [order("j", 1)])
GIVEN_ON = ([], [order("other", 1)])


def test_a_device_in_two_gangs_is_seen() -> None:
    elsewhere = says(judge_journal.STOPPED, node_id="m", job_id="j", epoch=1)
    empty, still = (says(judge_journal.REGISTERED, node_id="n", running=r) for r in ([], [{"job_id": "j", "epoch": 1}]))
    for frees in (STOPPED, empty):
        assert not complaints(judge_journal.one_gang_per_device(journal(GIVEN, ([frees], []), GIVEN_ON)))
        assert not complaints(judge_journal.one_gang_per_device(journal(GIVEN, ([frees], [order("other", 1)]))))
    for keeps in (elsewhere, still):
        assert "while j/1 held it" in complaints(judge_journal.one_gang_per_device(journal(GIVEN, ([keeps], []), GIVEN_ON)))[0]
    assert "while j/1 held it" in complaints(judge_journal.one_gang_per_device(journal(GIVEN, ([], [order("j", 2)]))))[0]
    assert not complaints(judge_journal.one_gang_per_device(journal(GIVEN, ([], [order("other", 1, "e")]))))


def test_an_input_that_is_skipped_doubled_or_never_taken_is_seen() -> None:
    good = journal(([STOPPED], []), ([STOPPED, STOPPED], []))
    assert not complaints(judge_journal.inputs_once(good))
    assert "2 inputs were never taken, the first is 3" in complaints(judge_journal.inputs_once(journal(([STOPPED] * 3, []), control=5)))[0]
    for wrong, told in (({0: 1}, "input 1 was taken where [0] was next"), ({1: 0}, "input 0 was taken where [1] was next")):
        bad = journal(([STOPPED], []), ([STOPPED], []), control=3)
        raw = [orjson.loads(value) for value in bad.journal[0]]
        for at, offset in wrong.items():
            raw[at]["inputs"][0]["offset"] = offset
        bad.journal[0] = [orjson.dumps(value) for value in raw]
        assert told in complaints(judge_journal.inputs_once(bad))[0]


def test_a_record_that_lost_the_race_does_not_count_and_a_broken_chain_is_seen() -> None:
    raced = journal(GIVEN, ([STOPPED], []))
    raced.journal[0].insert(1, raced.journal[0][0])
    assert [step.seq for step in judge_journal.counted(raced)[0]] == [1, 2] and not complaints(judge_journal.one_chain(raced))
    altered = journal(GIVEN, ([STOPPED], []))
    altered.journal[0][0] = altered.journal[0][0].replace(b'"epoch":1', b'"epoch":2')
    assert "seq 2 does not follow" in complaints(judge_journal.one_chain(altered))[0]


def test_progress_of_a_stale_epoch_and_an_epoch_that_goes_back_are_seen() -> None:
    def reported(epoch: int, step: int) -> tuple[str, dict[str, Any]]:
        return says(judge_journal.REPORTED, job_id="j", epoch=epoch, step=step)

    def counts(step: int) -> tuple[str, dict[str, Any]]:
        return says(judge_journal.PROGRESSED, job_id="j", progress={"step": step})

    newer = ([STOPPED], [order("j", 2)])
    good = journal(GIVEN, ([reported(1, 5)], [counts(5)]), newer, ([reported(1, 9)], []), ([reported(2, 6)], [counts(6)]))
    assert not complaints(judge_journal.stale_progress_is_ignored(good))
    stale = journal(GIVEN, newer, ([reported(1, 9)], [counts(9)]))
    assert "step 9 counted as progress of epoch 2" in complaints(judge_journal.stale_progress_is_ignored(stale))[0]
    assert "was allocated after 2" in complaints(judge_journal.stale_progress_is_ignored(journal(newer, GIVEN)))[0]
