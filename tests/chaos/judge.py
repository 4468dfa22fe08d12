"""The judge: separate rules over the evidence. Each returns complaints; none means that the rule holds.

Rules: one final state a job and none after it; effects never doubled or out of order; metrics and logs whole, without gap or double, as
the ranks' files say, and by the topic alone; commits are told once and their epochs never go back. Beside these: `judge_journal`,
`judge_store`.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import orjson

from tests.chaos.evidence import Evidence, Record
from trainhouse.events import CheckpointCompleted, JobStatus, JobSubmitted, LogLines, StepMetrics
from trainhouse.events.wire import topics
from trainhouse.workers.launcher.ports import AttemptPaths, RankPaths


def final_states(evidence: Evidence) -> Iterable[str]:
    """Every submitted job ends once; its statuses count upwards and stop at the end."""
    by_job: dict[str, list[JobStatus]] = defaultdict(list)
    for record in evidence.of(topics.STATUS, JobStatus):
        event = record.envelope.event
        assert isinstance(event, JobStatus)
        by_job[event.subject()].append(event)
    for record in evidence.of(topics.JOBS, JobSubmitted):
        job_id = record.envelope.subject
        statuses = by_job.get(job_id, [])
        if not statuses or not statuses[-1].state.final:
            yield f"job {job_id}: the last status is {statuses[-1].state if statuses else 'missing'}, not a final one"
        if any(s.state.final for s in statuses[:-1]):
            yield f"job {job_id}: a status follows a final one"
        for older, newer in pairwise(statuses):
            if newer.status_seq <= older.status_seq:
                yield f"job {job_id}: status_seq {newer.status_seq} follows {older.status_seq}"


def effects_once(evidence: Evidence) -> Iterable[str]:
    """On every partition, effects of the scheduler grow in (seq, ordinal): nothing doubled, nothing out of order.

    Intake's are told at least once by design (its output topics are not transactional); readers know a repeat by its id.
    """
    for topic in (topics.ALLOCATIONS, topics.STATUS):
        last: dict[tuple[int, str, int], Record] = {}
        for record in evidence.of(topic):
            if record.envelope.source in ("trainhouse/directory", "trainhouse/intake"):
                continue
            order = record.envelope.order
            if order is None:
                yield f"{topic}[{record.partition}]@{record.offset}: an effect without order"
                continue
            journal = (record.partition, record.envelope.source, order.partition)
            before = last.get(journal)
            if before is not None and before.envelope.order is not None and order <= before.envelope.order:
                yield f"{topic}[{record.partition}]@{record.offset}: order {order} follows {before.envelope.order}"
            last[journal] = record


def spools_whole(evidence: Evidence, attempts: Path) -> Iterable[str]:
    """After trimming overlaps, the metrics topic says just what each rank wrote to its spool: nothing lost, doubled or invented."""
    said: dict[tuple[str, int, int], dict[int, tuple[int, int, tuple[tuple[str, float | None], ...]]]] = defaultdict(dict)
    for record in evidence.of(topics.METRICS, StepMetrics):
        event = record.envelope.event
        assert isinstance(event, StepMetrics)
        points = said[(event.job_id, event.epoch, event.rank)]
        for i, offset in enumerate(event.offsets):
            values = tuple(sorted((name, column[i]) for name, column in event.metrics.items() if column[i] is not None))
            point = (event.steps[i], event.times_ms[i], values)
            if points.setdefault(offset, point) != point and str(points[offset]) != str(point):
                yield f"{event.job_id}/{event.epoch} rank {event.rank}: two different points at byte {offset}"
    for folder in spooling(attempts):
        job_id, epoch, rank = folder.parts[-3], AttemptPaths(folder.parent).epoch, int(folder.name.removeprefix("rank-"))
        written = _points(RankPaths(folder).spool)
        found = {offset: steps for offset, (steps, _, _) in said.pop((job_id, epoch, rank), {}).items()}
        if written != found:
            lost, invented = sorted(set(written) - set(found)), sorted(set(found) - set(written))
            yield f"{job_id}/{epoch} rank {rank}: {len(lost)} points lost (byte {lost[:1]}), {len(invented)} invented (byte {invented[:1]})"


def spooling(attempts: Path) -> list[Path]:
    """The folders of ranks that have a spool."""
    return sorted(folder for folder in attempts.glob("*/*/rank-*") if RankPaths(folder).spool.exists())


def points_per_rank(evidence: Evidence) -> dict[tuple[str, int, int, str], int]:
    """How many different values each metric of each rank of each epoch has on the topic."""
    seen: dict[tuple[str, int, int, str], set[int]] = defaultdict(set)
    for record in evidence.of(topics.METRICS, StepMetrics):
        event = record.envelope.event
        assert isinstance(event, StepMetrics)
        for name, column in event.metrics.items():
            offsets = (offset for offset, value in zip(event.offsets, column, strict=True) if value is not None)
            seen[(event.job_id, event.epoch, event.rank, name)].update(offsets)
    return {key: len(offsets) for key, offsets in seen.items() if offsets}


def _points(spool: Path) -> dict[int, int]:
    """Byte offset -> step of every whole metric line."""
    points, offset = {}, 0
    for line in spool.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            fields = orjson.loads(line)
            if fields[0] == "m":
                points[offset] = fields[1]
        offset += len(line)
    return points


def logs_whole(evidence: Evidence, attempts: Path) -> Iterable[str]:
    """The logs topic covers every byte of the ranks' files without a gap."""
    covered: dict[tuple[str, int, int, str], list[tuple[int, int]]] = defaultdict(list)
    for record in evidence.of(topics.LOGS, LogLines):
        event = record.envelope.event
        assert isinstance(event, LogLines)
        covered[(event.job_id, event.epoch, event.rank, event.stream)].append((event.start, event.end))
    for file in sorted(attempts.glob("*/*/rank-*/std*.log")):
        key = (file.parts[-4], AttemptPaths(file.parent.parent).epoch, int(file.parts[-2].removeprefix("rank-")), file.stem)
        reached = 0
        for start, end in sorted(covered[key]):
            if start > reached:
                yield f"{key}: bytes {reached} to {start} of {file.name} are missing"
            reached = max(reached, end)
        if reached != file.stat().st_size:
            yield f"{key}: {reached} of {file.stat().st_size} bytes of {file.name} were shipped"


def commits_agree(evidence: Evidence) -> Iterable[str]:
    """The epochs of a job's commits never go back as they were told; a repeat says the same."""
    by_job: dict[str, dict[int, CheckpointCompleted]] = defaultdict(dict)
    for record in evidence.of(topics.CHECKPOINTS, CheckpointCompleted):
        event = record.envelope.event
        assert isinstance(event, CheckpointCompleted)
        first = by_job[event.job_id].setdefault(event.commit, event)
        if (first.step, first.uri) != (event.step, event.uri):
            yield f"job {event.job_id}: commit {event.commit} was said to be step {first.step} and step {event.step}"
    for job_id, commits in by_job.items():
        for (n, older), (m, newer) in pairwise(sorted(commits.items())):
            if newer.epoch < older.epoch:
                yield f"job {job_id}: commit {m} of epoch {newer.epoch} follows commit {n} of epoch {older.epoch}"


def steps_without_gap(evidence: Evidence, jobs: Iterable[str]) -> Iterable[str]:
    """Each metric that a rank of these jobs logs at every step has one value for every step of its attempt, by the topic alone."""
    wanted = set(jobs)
    steps: dict[tuple[str, int, int, str], dict[int, int]] = defaultdict(dict)
    for record in evidence.of(topics.METRICS, StepMetrics):
        event = record.envelope.event
        assert isinstance(event, StepMetrics)
        if event.job_id in wanted and "loss" in event.metrics:
            for offset, step, value in zip(event.offsets, event.steps, event.metrics["loss"], strict=True):
                if value is not None:
                    steps[(event.job_id, event.epoch, event.rank, "loss")][offset] = step
    for (job_id, epoch, rank, name), points in sorted(steps.items()):
        in_order = [step for _, step in sorted(points.items())]
        for older, newer in pairwise(in_order):
            if newer != older + 1:
                yield f"{job_id}/{epoch} rank {rank}: {name} of step {newer} follows that of step {older}"
