"""The tables that lanes write, by name.

Holds: each has a migration; a table whose rows are appended is counted after a replay, every other one collapses repeats by its key.
"""

from __future__ import annotations

DEAD_LETTERS_TABLE = "dead_letters_rows"
# Tables whose rows a lane makes by their schema: all but the seconds of metrics (second_rollup.py).
TABLES = (
    "jobs_rows",
    "statuses_rows",
    "rejections_rows",
    "attempt_facts",
    "rank_facts",
    "checkpoint_facts",
    "node_facts",
    "pools_rows",
    "pool_creations_rows",
    "policies_rows",
    "projects_rows",
    "dataset_versions_rows",
    "dataset_drift_rows",
    "dataset_shards_rows",
    "dataset_grants_rows",
    "data_positions_rows",
    "shard_steps_rows",
    "refused_changes_rows",
    "node_restrictions_rows",
    "reservations_rows",
    "explanations_rows",
    "verdicts_rows",
    "alerts_rows",
    "node_minutes_rows",
    "attempt_minutes_rows",
    "attempt_beats_rows",
    "device_facts",
    "device_minutes_rows",
    "closed_devices_rows",
    "decisions_rows",
    "placements_rows",
    "lineage_rows",
    "artifacts_rows",
    "artifact_versions_rows",
    "documents_rows",
    "model_facts",
    "audit_rows",
    "node_keys_rows",
    "node_key_history_rows",
    "tracked_runs_rows",
    "tracked_changes_rows",
    "parameters_rows",
    "tags_rows",
    "inputs_rows",
    "job_environments_rows",
    "job_specs_rows",
    "experiments_rows",
    "service_measures_rows",
    "events_rows",
    "step_metrics",
    "logs",
    DEAD_LETTERS_TABLE,
)
APPENDED = frozenset({"step_metrics", "logs"})
