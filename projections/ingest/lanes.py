"""Lanes: the topics of each, and the projections that they feed.

Holds: a lane reads its topics in batches of its own, with positions of its own, so that a flood of metrics never delays a status.
To add a projection: a migration, a rows function, a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from trainhouse.events.wire import topics
from trainhouse.projections.ingest.builders import second_rollup
from trainhouse.projections.ingest.builders.decision_rows import JournalBuilder
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.ingest.builders.heartbeat_rows import HeartbeatsBuilder
from trainhouse.projections.ingest.builders.log_rows import LogsBuilder
from trainhouse.projections.ingest.builders.rank_rows import OfRanksBuilder
from trainhouse.projections.ingest.builders.report_rows import ReportsBuilder
from trainhouse.projections.ingest.builders.row_batch import Builder
from trainhouse.projections.ingest.builders.step_metrics import MetricsBuilder
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.ingest.senders import Senders
from trainhouse.projections.record import RowsFunction
from trainhouse.projections.rows import (
    attempts,
    beats,
    checkpoints,
    decisions,
    devices,
    explanations,
    jobs,
    lineage,
    minutes,
    node_keys,
    nodes,
    one_to_one,
    placements,
    pools,
    projects,
    ranks,
    specs,
    tracking,
    verdict_rows,
)
from trainhouse.projections.rows.datasets import drift_rows, grant_rows, read_rows
from trainhouse.projections.rows.lines import event_lines
from trainhouse.projections.rows.models import model_rows, observation_rows
from trainhouse.projections.rows.studies import study_rows
from trainhouse.projections.store.tables import APPENDED, DEAD_LETTERS_TABLE, TABLES

FACTS: dict[str, tuple[RowsFunction, ...]] = {
    topics.STATUS: (jobs.rows, event_lines.rows),
    topics.JOBS: (event_lines.rows,),
    topics.ALLOCATIONS: (attempts.rows, ranks.rows, lineage.rows, tracking.rows, event_lines.rows),
    topics.VERDICTS: (nodes.rows, pools.rows, verdict_rows.rows, event_lines.rows),
    topics.ALERTS: (one_to_one.alerts,),
    topics.POOLS: (pools.rows,),
    topics.POLICIES: (pools.rows,),
    topics.PROJECTS: (projects.rows,),
    topics.DATASETS: (one_to_one.dataset_versions, one_to_one.dataset_shards, grant_rows.rows, lineage.rows),
    topics.MODEL_HISTORY: (model_rows.rows,),
    topics.OBSERVATIONS: (observation_rows.rows,),
    topics.MODEL_DRIFT: (observation_rows.rows,),
    topics.STUDY_HISTORY: (study_rows.rows,),
    topics.STUDIES: (study_rows.status,),
    topics.RESERVATIONS: (pools.rows,),
    topics.EXPLANATIONS: (explanations.rows,),
    topics.TRACKING: (
        tracking.rows,
        one_to_one.artifacts,
        one_to_one.artifact_versions,
        one_to_one.documents,
        checkpoints.rows,
        drift_rows.rows,
        lineage.rows,
        event_lines.rows,
    ),
    topics.AUDIT: (one_to_one.audit, grant_rows.rows),
    topics.NODE_AUDIT: (one_to_one.audit,),
    topics.NODE_KEYS: (node_keys.rows,),
    topics.SERVICES: (one_to_one.service_measures,),
    topics.TOKENS: (one_to_one.audit,),
    topics.DEAD_LETTERS: (),
}
# What ranks tell beside points and lines: read where a node of the job signed it (senders.py).
OF_RANKS: dict[str, tuple[RowsFunction, ...]] = {
    topics.CHECKPOINTS: (checkpoints.rows, lineage.rows, event_lines.rows),
    topics.ENVIRONMENTS: (
        tracking.rows,
        one_to_one.artifacts,
        one_to_one.artifact_versions,
        read_rows.rows,
        lineage.rows,
        event_lines.rows,
    ),
}
# What was said on control, as far as the scheduler took it: read from its journal (report_rows.py).
REPORTS: dict[str, tuple[RowsFunction, ...]] = {
    topics.CONTROL: (attempts.rows, ranks.rows, nodes.rows, devices.rows, checkpoints.rows, lineage.rows, specs.rows, event_lines.rows)
}
BEATS: dict[str, tuple[RowsFunction, ...]] = {topics.HEARTBEATS: (ranks.rows, nodes.rows, minutes.rows, beats.rows, devices.rows)}
DECISIONS: dict[str, tuple[RowsFunction, ...]] = {
    topics.DECISIONS: (decisions.rows, placements.rows, jobs.history, jobs.ended, lineage.rows, devices.rows, specs.rows, pools.creations)
}


@dataclass(frozen=True)
class LaneSpec:
    """A lane: its topics, the tables that it may write (beside dead letters), and how its builder is made from the tables' schemas
    the nodes' keys, and who may tell what of a rank.

    `periodic`: every node tells the same things each second or so. Written one by one they would cost as many parts as all else, and be
    no fresher, so they gather longer. `quiet_s` and `done_s`: how long records that make no row may be kept back, and the done of a batch
    (lane.py); for lanes alone whose positions nobody waits for.
    """

    name: str
    topics: tuple[str, ...]
    tables: frozenset[str]
    builder: Callable[[Mapping[str, pa.Schema], NodeKeys, Senders], Builder]
    periodic: bool = False
    quiet_s: float = 0.0
    done_s: float = 0.0


_DECISIONS_ALONE = frozenset({"decisions_rows", placements.TABLE, "closed_devices_rows", "pool_creations_rows"})
OF_DECISIONS = _DECISIONS_ALONE | {"jobs_rows", "statuses_rows", "lineage_rows", "job_specs_rows"}
OF_METRICS = frozenset({"step_metrics", second_rollup.TABLE})
_BEATS_ALONE = frozenset({"device_minutes_rows", "node_minutes_rows", "attempt_minutes_rows", "attempt_beats_rows"})
OF_BEATS = _BEATS_ALONE | {"rank_facts", "node_facts", "device_facts"}
OF_REPORTS = frozenset(
    {"attempt_facts", "rank_facts", "node_facts", "device_facts", "checkpoint_facts", "lineage_rows", "job_specs_rows", "events_rows"}
)
_RANKS_ALONE = frozenset({read_rows.POSITIONS, read_rows.SHARDS})
OF_FACTS = frozenset(TABLES) - APPENDED - _BEATS_ALONE - _DECISIONS_ALONE - _RANKS_ALONE - {"device_facts"}
TABLES_OF_RANKS = _RANKS_ALONE | frozenset(
    {"checkpoint_facts", "lineage_rows", "events_rows", "job_environments_rows", "artifacts_rows", "artifact_versions_rows"}
)

LANES: tuple[LaneSpec, ...] = (
    LaneSpec("facts", tuple(FACTS), OF_FACTS, lambda schemas, *_: FactsBuilder(FACTS, schemas)),
    LaneSpec(
        "beats",
        tuple(BEATS),
        OF_BEATS,
        lambda schemas, keys, senders: HeartbeatsBuilder(BEATS, schemas, keys, senders),
        periodic=True,
        done_s=10.0,
    ),
    LaneSpec(
        "decisions",
        tuple(DECISIONS),
        OF_DECISIONS,
        lambda schemas, _, senders: JournalBuilder(DECISIONS, schemas, senders.emptied),
        quiet_s=5.0,
        done_s=5.0,
    ),
    LaneSpec(
        "reports",
        tuple(DECISIONS),
        OF_REPORTS,
        lambda schemas, _, senders: ReportsBuilder(REPORTS, schemas, senders),
        quiet_s=5.0,
        done_s=5.0,
    ),
    LaneSpec("ranks", tuple(OF_RANKS), TABLES_OF_RANKS, lambda schemas, _, senders: OfRanksBuilder(OF_RANKS, schemas, senders)),
    LaneSpec("metrics", topics.POINT_TOPICS, OF_METRICS, lambda schemas, _, senders: MetricsBuilder(schemas[DEAD_LETTERS_TABLE], senders)),
    LaneSpec("logs", (topics.LOGS,), frozenset({"logs"}), lambda schemas, _, senders: LogsBuilder(schemas[DEAD_LETTERS_TABLE], senders)),
)
