"""Which topics feed which projections, in which lane.

Holds: a lane reads its topics in batches of its own, with positions of its own, so that a flood of metrics never delays a status.
To add a projection: a migration, a rows function, a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from trainhouse.events import topics
from trainhouse.projections.built import Builder
from trainhouse.projections.facts import DEAD_LETTERS_TABLE, FactsBuilder
from trainhouse.projections.loglines import LogsBuilder
from trainhouse.projections.metrics import MetricsBuilder
from trainhouse.projections.record import RowsFunction
from trainhouse.projections.rows import attempts, checkpoints, explanations, jobs, nodes, pools, ranks, story

FACTS: dict[str, tuple[RowsFunction, ...]] = {
    topics.STATUS: (jobs.rows, story.rows),
    topics.JOBS: (story.rows,),
    topics.CONTROL: (attempts.rows, ranks.rows, nodes.rows, checkpoints.rows, story.rows),
    topics.ALLOCATIONS: (attempts.rows, ranks.rows, story.rows),
    topics.CHECKPOINTS: (checkpoints.rows, story.rows),
    topics.VERDICTS: (nodes.rows, pools.rows, story.rows),
    topics.POOLS: (pools.rows,),
    topics.POLICIES: (pools.rows,),
    topics.RESERVATIONS: (pools.rows,),
    topics.EXPLANATIONS: (explanations.rows,),
    topics.DEAD_LETTERS: (),
}
BEATS: dict[str, tuple[RowsFunction, ...]] = {topics.HEARTBEATS: (ranks.rows, nodes.rows)}

# Every table that a lane writes rows to. Those in APPENDED are counted after a replay; the others collapse repeats by their key.
TABLES = (
    "jobs_rows",
    "statuses_rows",
    "rejections_rows",
    "attempt_facts",
    "rank_facts",
    "checkpoint_facts",
    "node_facts",
    "pools_rows",
    "policies_rows",
    "refused_changes_rows",
    "node_restrictions_rows",
    "reservations_rows",
    "explanations_rows",
    "events_rows",
    "step_metrics",
    "logs",
    DEAD_LETTERS_TABLE,
)
APPENDED = frozenset({"step_metrics", "logs"})


@dataclass(frozen=True)
class LaneSpec:
    """A lane: its topics, and how its builder is made from the tables' schemas."""

    name: str
    topics: tuple[str, ...]
    builder: Callable[[Mapping[str, pa.Schema]], Builder]


LANES: tuple[LaneSpec, ...] = (
    LaneSpec("facts", tuple(FACTS), lambda schemas: FactsBuilder(FACTS, schemas)),
    LaneSpec("beats", tuple(BEATS), lambda schemas: FactsBuilder(BEATS, schemas)),
    LaneSpec("metrics", (topics.METRICS,), lambda schemas: MetricsBuilder(schemas[DEAD_LETTERS_TABLE])),
    LaneSpec("logs", (topics.LOGS,), lambda schemas: LogsBuilder(schemas[DEAD_LETTERS_TABLE])),
)
