"""Rules over the object store's commit chains, read as JSON: each returns complaints; none means that the rule holds.

Rules: a chain is dense, its epochs never fall, and every checkpoint is of the epoch that claimed the chain last; only allocated attempts
are in it; a checkpoint that was said to be complete is there with all of its chunks, unless retention took it.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.chaos.evidence import Evidence
from trainhouse.events import CheckpointCompleted, GangAllocated
from trainhouse.events.wire import topics

CLAIM = "claim"


def one_committer(evidence: Evidence) -> Iterable[str]:
    """At every place of a job's chain one attempt alone was able to commit: the last that claimed."""
    for job_id, chain in sorted(evidence.stored.chains.items()):
        if sorted(chain) != list(range(len(chain))):
            yield f"job {job_id}: its chain has holes: {sorted(chain)}"
        claimed = -1
        for n, entry in sorted(chain.items()):
            if entry["kind"] == CLAIM:
                if entry["epoch"] < claimed:
                    yield f"job {job_id}: commit {n} is a claim of epoch {entry['epoch']} after one of epoch {claimed}"
                claimed = max(claimed, entry["epoch"])
            elif entry["epoch"] != claimed:
                yield f"job {job_id}: commit {n} is of epoch {entry['epoch']}, but epoch {claimed} had the chain"


def epochs_were_allocated(evidence: Evidence) -> Iterable[str]:
    """Whoever claimed or committed was an attempt that the scheduler had allocated."""
    given: dict[str, set[int]] = defaultdict(set)
    for record in evidence.of(topics.ALLOCATIONS, GangAllocated):
        event = record.envelope.event
        assert isinstance(event, GangAllocated)
        given[event.job_id].add(int(event.epoch))
    for job_id, chain in sorted(evidence.stored.chains.items()):
        for epoch in sorted({entry["epoch"] for entry in chain.values()} - given[job_id]):
            yield f"job {job_id}: epoch {epoch} is in its chain, and was never allocated"


def checkpoints_whole(evidence: Evidence) -> Iterable[str]:
    """What was said to be complete is in the chain as it was said, and its chunks are in the store."""
    for record in evidence.of(topics.CHECKPOINTS, CheckpointCompleted):
        event = record.envelope.event
        assert isinstance(event, CheckpointCompleted)
        entry = evidence.stored.chains.get(event.job_id, {}).get(event.commit)
        if entry is None or entry["kind"] == CLAIM:
            yield f"job {event.job_id}: commit {event.commit} was said to be complete, the chain has {_kind(entry)} there"
        elif (entry["epoch"], entry["step"]) != (int(event.epoch), event.step):
            told = f"epoch {int(event.epoch)}, step {event.step}"
            yield f"job {event.job_id}: commit {event.commit} was said to be {told}; it is epoch {entry['epoch']}, step {entry['step']}"
    for job_id, chain in sorted(evidence.stored.chains.items()):
        for n, entry in sorted(chain.items()):
            lost = [c["sha256"] for c in entry.get("chunks", ()) if c["sha256"] not in evidence.stored.chunks]
            if lost:
                yield f"job {job_id}: commit {n} names {len(lost)} chunks that are not in the store, the first is {lost[0]}"


def _kind(entry: dict[str, Any] | None) -> str:
    return "nothing" if entry is None else f"a {entry['kind']}"
