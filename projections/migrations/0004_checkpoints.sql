-- Facts about checkpoints. The commit number names a checkpoint, so a CheckpointCompleted that is sent again collapses.
-- commit is -1 for a save that began or failed: it has no number. `occurrence` tells repeats of a fact from new ones: the epoch
-- of a restore, epoch and step of a save; empty where the commit says all. The copy with the largest version stays: the first.
CREATE TABLE IF NOT EXISTS checkpoint_facts (
    job_id String,
    commit Int64,
    fact LowCardinality(String),
    occurrence String,
    version UInt64,
    epoch UInt32,
    step UInt64,
    attempt UInt32,
    at DateTime64(3, 'UTC'),
    uri String,
    bytes_total UInt64,
    bytes_new UInt64,
    stage_s Float64,
    upload_s Float64,
    restore_s Float64,
    world_size UInt32,
    reason String,
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, commit, fact, occurrence)
SETTINGS non_replicated_deduplication_window = 1000;

-- One row a commit. A pruned one stays, with the time at which retention removed it.
CREATE OR REPLACE VIEW checkpoints AS
SELECT
    job_id, toUInt64(f.commit) AS commit,
    argMinIf(f.step, f.at, f.fact = 'completed') AS step,
    argMinIf(f.attempt, f.at, f.fact = 'completed') AS attempt,
    argMinIf(f.epoch, f.at, f.fact = 'completed') AS epoch,
    if(countIf(f.fact = 'pruned') > 0, 'PRUNED', 'COMPLETED') AS state,
    argMinIf(f.uri, f.at, f.fact = 'completed') AS uri,
    argMinIf(f.bytes_total, f.at, f.fact = 'completed') AS bytes_total,
    argMinIf(f.bytes_new, f.at, f.fact = 'completed') AS bytes_new,
    argMinIf(f.stage_s, f.at, f.fact = 'completed') AS stage_s,
    argMinIf(f.upload_s, f.at, f.fact = 'completed') AS upload_s,
    argMinIf(f.world_size, f.at, f.fact = 'completed') AS world_size,
    minIf(f.at, f.fact = 'completed') AS completed_at,
    minOrNullIf(f.at, f.fact = 'pruned') AS pruned_at,
    countIf(f.fact = 'restored') AS restores
FROM checkpoint_facts AS f FINAL
WHERE f.commit >= 0
GROUP BY job_id, f.commit
HAVING countIf(f.fact = 'completed') > 0;

CREATE OR REPLACE VIEW checkpoint_failures AS
SELECT job_id, attempt, epoch, step, reason, at AS failed_at FROM checkpoint_facts FINAL WHERE fact = 'failed';

CREATE OR REPLACE VIEW checkpoint_restores AS
SELECT job_id, attempt, epoch, toUInt64(commit) AS commit, step, uri, restore_s, reason AS damaged, at AS restored_at
FROM checkpoint_facts FINAL WHERE fact = 'restored';
