"""Bytes a day of the journal, of what is published, and of the topic of progress: 10,000 devices, 500 running jobs that report each second,
5,000 jobs a day.

A few minutes of one partition, as its owner would write them, times what is left of a day. Compressed: each record by itself, as a producer
does that sends one record a batch; nodes' and pools' events are too few to count. `--old-agents`: all reports come on control.
"""

import random
import sys
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from tests.bench import report
from tests.bench.journal_gate import Stage
from trainhouse.events import Event, ProgressReported, encode, envelope_of
from trainhouse.scheduler.core.protocol.batch import Proposer
from trainhouse.scheduler.core.protocol.gate import Written
from trainhouse.scheduler.core.protocol.journal import fold_bytes
from trainhouse.scheduler.stream.journal.publishing import LIVE_STATUSES
from trainhouse.scheduler.stream.scheduling.live_statuses import LiveJobStatuses
from trainhouse.workers.agent.ship.rank_shipper import PROGRESS_INTERVAL_MS

SPAN_S, DAY_S = 180, 86_400
JOBS_A_DAY = 5_000
RECORD_MS = 20  # an owner's busy tick
IDLE_MS = 800  # an idle one


class Owner:
    """The partition's owner: what it appends, and what it publishes with a record and without."""

    def __init__(self) -> None:
        self.stage, self.live, self.sizes = Stage(7), LiveJobStatuses("schedule"), Counter[str]()
        self._proposer, self._codec = Proposer(self.stage.machine, "bench"), pa.Codec("zstd")
        self._ticked_ms = 0

    def count(self, kind: str, value: bytes) -> None:
        """Bytes as they are, and compressed."""
        self.sizes[kind] += len(value)
        self.sizes[f"{kind}_zstd"] += len(self._codec.compress(value))

    def turn(self, events: Sequence[Event], beside: Sequence[Event]) -> None:
        """One turn: progress is read, a record appended where one is due, and statuses go out."""
        stage, live = self.stage, self.live
        state = stage.folded.state
        for n, event in enumerate(beside):
            self.count("progress", encode(envelope_of(event, id=f"p{stage.now_ms}.{n}", source="bench", now_ms=stage.now_ms)))
        live.offer_inputs(state, [*beside, *(e for e in events if isinstance(e, ProgressReported))], stage.now_ms)
        idle = stage.now_ms - self._ticked_ms >= IDLE_MS
        marks = live.marks(state, stage.now_ms) if events or idle else []
        if events or idle:
            self._ticked_ms = stage.now_ms
            self._append(events, marks)
        for out in live.outgoing(stage.folded.state, 0, stage.folded.seq, stage.now_ms, LIVE_STATUSES):
            self.count("published", out.value)

    def _append(self, events: Sequence[Event], marks: Sequence[Event]) -> None:
        stage = self.stage
        proposed = self._propose(events, marks)
        behind = self.live.behind(stage.folded.state, proposed.record.decisions)
        proposed = self._propose(events, [*marks, *behind]) if behind else proposed
        stage.folded, _ = fold_bytes(stage.machine, stage.folded, proposed.value, proposed.record)
        self.live.own_record(stage.now_ms, proposed.record.decisions)
        self.sizes["records"] += 1
        self.count("journal", proposed.value)
        for decision in proposed.record.decisions:
            if decision.event_type == "trainhouse.job.status.v1":
                self.sizes["journaled_statuses"] += len(decision.model_dump_json())
        for out in proposed.published:
            self.count("published", out.value)

    def _propose(self, events: Sequence[Event], marks: Sequence[Event]) -> Written:
        stage = self.stage
        waiting = stage.waiting(events)
        proposed = self._proposer.propose(stage.folded, stage.now_ms, waiting, stage.folded.seq, tick=True, marks=marks)
        assert proposed is not None
        return proposed


def run() -> None:
    """Prints one line."""
    owner, old = Owner(), "--old-agents" in sys.argv
    stage, draw = owner.stage, random.Random(11)
    running, due = len(stage.folded.state.active), dict[str, int]()
    begun: set[str] = set()
    turnover_ms, next_turn_ms = DAY_S * 1000 / JOBS_A_DAY, stage.now_ms
    begun_ms = stage.now_ms
    while stage.now_ms < begun_ms + SPAN_S * 1000:
        stage.now_ms += RECORD_MS
        if stage.now_ms == begun_ms + 60_000:
            owner.sizes.clear()  # the first reports of all jobs at once are no usual minute
        events: list[Event] = []
        beside: list[Event] = []
        if stage.now_ms >= next_turn_ms:
            next_turn_ms += round(turnover_ms)
            events += stage.turnover()
        for job_id in sorted(stage.folded.state.active):
            at_ms = due.setdefault(job_id, stage.now_ms + draw.randrange(PROGRESS_INTERVAL_MS))
            if stage.now_ms >= at_ms:
                due[job_id] = at_ms + PROGRESS_INTERVAL_MS
                (events if old or job_id not in begun else beside).extend(stage.progress([job_id]))
                begun.add(job_id)
        owner.turn(events, beside)
    a_day = DAY_S / (SPAN_S - 60)
    figures = {f"{kind}_gb": owner.sizes[kind] * a_day / 1e9 for kind in KINDS}
    records = round(owner.sizes["records"] * a_day)
    report.line(
        "journal_day",
        devices=10_000,
        running=running,
        jobs_a_day=JOBS_A_DAY,
        old_agents=old,
        records_a_day=records,
        **figures,
        aim_journal_gb=2,
    )


KINDS = ("journal", "journal_zstd", "journaled_statuses", "published", "published_zstd", "progress", "progress_zstd")
