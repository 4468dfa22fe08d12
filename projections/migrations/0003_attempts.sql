-- Facts about attempts, one row a fact: what an attempt is now is an aggregate of them, in whatever order they arrived.
-- A repeated fact has the same key and collapses. `rank` is -1 where the fact is about a node.
CREATE TABLE IF NOT EXISTS attempt_facts (
    job_id String,
    epoch UInt32,
    attempt UInt32,
    fact LowCardinality(String),
    node_id String,
    rank Int32,
    pool LowCardinality(String),
    at DateTime64(3, 'UTC'),
    first_rank UInt32,
    device_ids Array(String),
    world_size UInt32,
    exit_code Nullable(Int32),
    signal Nullable(Int32),
    warm UInt8,
    reason String,
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (job_id, epoch, fact, node_id, rank)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW attempts AS
SELECT
    job_id, epoch, any(f.attempt) AS attempt, any(f.pool) AS pool,
    max(f.world_size) AS world_size,
    uniqExactIf(f.node_id, f.fact = 'allocated') AS nodes,
    uniqExactIf(f.node_id, f.fact = 'started') AS nodes_started,
    uniqExactIf(f.node_id, f.fact = 'stopped') AS nodes_stopped,
    countIf(f.fact = 'exited' AND f.exit_code = 0) AS ranks_succeeded,
    countIf(f.fact = 'exited' AND (f.exit_code IS NULL OR f.exit_code != 0)) AS ranks_failed,
    multiIf(nodes > 0 AND nodes_stopped >= nodes, 'STOPPED',
            countIf(f.fact = 'released') > 0, 'STOPPING',
            ranks_failed > 0 OR countIf(f.fact = 'launch_failed') > 0, 'FAILING',
            nodes > 0 AND nodes_started >= nodes, 'RUNNING',
            'STARTING') AS state,
    argMinIf(f.reason, f.at, f.reason != '') AS reason,
    toBool(maxIf(f.warm, f.fact = 'started')) AS warm,
    minOrNullIf(f.at, f.fact = 'allocated') AS allocated_at,
    maxOrNullIf(f.at, f.fact = 'started') AS started_at,
    minOrNullIf(f.at, f.fact = 'released') AS released_at,
    maxOrNullIf(f.at, f.fact = 'stopped') AS stopped_at
FROM attempt_facts AS f FINAL
GROUP BY job_id, epoch;

-- One row a gang's part on one node: which devices, from when to when.
CREATE OR REPLACE VIEW allocations AS
SELECT
    job_id, epoch, node_id, any(f.attempt) AS attempt, any(f.pool) AS pool,
    maxIf(f.first_rank, f.fact = 'allocated') AS first_rank,
    anyIf(f.device_ids, f.fact = 'allocated') AS device_ids,
    length(device_ids) AS devices,
    minOrNullIf(f.at, f.fact = 'allocated') AS allocated_at,
    minOrNullIf(f.at, f.fact = 'released') AS released_at,
    maxOrNullIf(f.at, f.fact = 'stopped') AS freed_at,
    argMinIf(f.reason, f.at, f.fact = 'released') AS reason,
    devices * dateDiff('millisecond', allocated_at, ifNull(freed_at, now64(3))) / 1000 AS device_seconds
FROM attempt_facts AS f FINAL
WHERE f.node_id != ''
GROUP BY job_id, epoch, node_id
HAVING devices > 0;

-- Ranks: where one was placed, its newest heartbeat, its end; one row each, the newest `at` wins.
CREATE TABLE IF NOT EXISTS rank_facts (
    job_id String,
    epoch UInt32,
    rank UInt32,
    fact LowCardinality(String),
    version UInt64,
    attempt UInt32,
    node_id String,
    device_id String,
    at DateTime64(3, 'UTC'),
    state LowCardinality(String),
    pid Nullable(UInt32),
    step Nullable(UInt64),
    step_at Nullable(DateTime64(3, 'UTC')),
    step_time_ms Nullable(Float64),
    data_wait_s Float64,
    save_stall_s Float64,
    exit_code Nullable(Int32),
    signal Nullable(Int32),
    reason String,
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, epoch, rank, fact)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW ranks AS
SELECT
    job_id, epoch, rank, any(f.attempt) AS attempt,
    argMin(f.node_id, f.node_id = '') AS node_id,
    argMin(f.device_id, f.device_id = '') AS device_id,
    multiIf(countIf(f.fact = 'exited') > 0, 'EXITED',
            countIf(f.fact = 'beat') > 0, anyIf(f.state, f.fact = 'beat'),
            'PLACED') AS state,
    maxOrNullIf(f.at, f.fact = 'beat') AS last_heartbeat_at,
    anyIf(f.pid, f.fact = 'beat') AS pid,
    anyIf(f.step, f.fact = 'beat') AS step,
    anyIf(f.step_at, f.fact = 'beat') AS step_at,
    anyIf(f.step_time_ms, f.fact = 'beat') AS step_time_ms,
    maxIf(f.data_wait_s, f.fact = 'beat') AS data_wait_s,
    maxIf(f.save_stall_s, f.fact = 'beat') AS save_stall_s,
    anyIf(f.exit_code, f.fact = 'exited') AS exit_code,
    anyIf(f.signal, f.fact = 'exited') AS signal,
    anyIf(f.reason, f.fact = 'exited') AS reason
FROM rank_facts AS f FINAL
GROUP BY job_id, epoch, rank;
