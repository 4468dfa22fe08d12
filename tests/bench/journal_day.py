"""Bytes a day of the journal and of what it publishes: 10,000 devices, 500 running jobs that report each second, 5,000 jobs a day.

A few minutes of one partition, as its owner would write them, times what is left of a day. Compressed: each record by itself, as a producer
does that sends one record a batch; nodes' and pools' events are too few to count.
"""

import random
from collections import Counter

import pyarrow as pa

from tests.bench import report
from tests.bench.journal_gate import Stage
from trainhouse.events import Event
from trainhouse.scheduler.core.batch import Proposer
from trainhouse.scheduler.core.journal import fold_bytes
from trainhouse.workers.agent.rank_shipper import PROGRESS_INTERVAL_MS

SPAN_S, DAY_S = 120, 86_400
JOBS_A_DAY = 5_000
RECORD_MS = 20  # an owner's busy tick


def run() -> None:
    """Prints one line."""
    stage, codec, sizes = Stage(7), pa.Codec("zstd"), Counter[str]()
    running = len(stage.folded.state.active)
    due: dict[str, int] = {}
    draw = random.Random(11)
    turnover_ms, next_turn_ms = DAY_S * 1000 / JOBS_A_DAY, stage.now_ms
    begun_ms = stage.now_ms
    while stage.now_ms < begun_ms + SPAN_S * 1000:
        stage.now_ms += RECORD_MS
        events: list[Event] = []
        if stage.now_ms >= next_turn_ms:
            next_turn_ms += round(turnover_ms)
            events += stage.turnover()
        for job_id in sorted(stage.folded.state.active):
            at_ms = due.setdefault(job_id, stage.now_ms + draw.randrange(PROGRESS_INTERVAL_MS))
            if stage.now_ms >= at_ms:
                due[job_id] = at_ms + PROGRESS_INTERVAL_MS
                events += stage.progress([job_id])
        proposed = Proposer(stage.machine, "bench").propose(stage.folded, stage.now_ms, stage.waiting(events), stage.folded.seq, tick=True)
        assert proposed is not None
        stage.folded, _ = fold_bytes(stage.machine, stage.folded, proposed.value, proposed.record)
        sizes["records"] += 1
        sizes["inputs"] += len(events)
        sizes["journal"] += len(proposed.value)
        sizes["journal_zstd"] += len(codec.compress(proposed.value))
        for out in proposed.published:
            sizes["published"] += len(out.value)
            sizes["published_zstd"] += len(codec.compress(out.value))
    a_day = DAY_S / SPAN_S / 1e9
    report.line(
        "journal_day",
        devices=10_000,
        running=running,
        jobs_a_day=JOBS_A_DAY,
        records_a_day=round(sizes["records"] * DAY_S / SPAN_S),
        journal_gb=sizes["journal"] * a_day,
        journal_zstd_gb=sizes["journal_zstd"] * a_day,
        published_gb=sizes["published"] * a_day,
        published_zstd_gb=sizes["published_zstd"] * a_day,
        aim_journal_gb=2,
    )
