-- Pools, and the partition of control that each belongs to for ever.
CREATE TABLE IF NOT EXISTS pools_rows (
    pool String,
    partition UInt32,
    created_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY pool
SETTINGS non_replicated_deduplication_window = 1000;

-- Every policy that ever decided about a pool. `text` is the file as it was applied, `json` the whole policy.
CREATE TABLE IF NOT EXISTS policies_rows (
    pool String,
    version UInt32,
    name String,
    user String,
    reason String,
    applied_at DateTime64(3, 'UTC'),
    text String CODEC(ZSTD),
    json String CODEC(ZSTD),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (pool, version)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW policies AS SELECT * FROM policies_rows FINAL;

-- Changes of policies and nodes that do not count, by the id of the event that asked.
CREATE TABLE IF NOT EXISTS refused_changes_rows (
    event_id String,
    pool String,
    user String,
    reason String,
    refused_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY event_id
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW refused_changes AS SELECT * FROM refused_changes_rows FINAL;

-- What people closed nodes for, and opened them again: `version` orders the restrictions of a node.
CREATE TABLE IF NOT EXISTS node_restrictions_rows (
    node_id String,
    version UInt64,
    pool LowCardinality(String),
    restriction LowCardinality(String),
    reason String,
    restricted_by String,
    restricted_at DateTime64(3, 'UTC'),
    deadline_at Nullable(DateTime64(3, 'UTC')),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (node_id, version)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW node_restrictions AS SELECT * FROM node_restrictions_rows FINAL;

-- Start times that the scheduler holds for waiting jobs: the newest word about each job stays, `held` 0 means: no more.
CREATE TABLE IF NOT EXISTS reservations_rows (
    job_id String,
    version UInt64,
    held UInt8,
    start_at Nullable(DateTime64(3, 'UTC')),
    made_at Nullable(DateTime64(3, 'UTC')),
    node_ids Array(String),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY job_id
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW reservations AS
SELECT job_id, start_at, made_at, node_ids FROM reservations_rows FINAL WHERE held = 1;

CREATE OR REPLACE VIEW nodes AS
SELECT
    f.node_id AS node_id,
    argMax(f.pool, f.at) AS pool,
    multiIf(argMax(f.fact, f.at) = 'lost', 'LOST', argMax(f.fact, f.at) = 'suspected', 'SUSPECTED', 'ALIVE') AS state,
    if(any(r.restriction) = '', 'NONE', any(r.restriction)) AS restriction,
    any(r.reason) AS restriction_reason,
    any(r.restricted_by) AS restricted_by,
    argMax(f.boot_id, f.at) AS boot_id,
    anyIf(f.address, f.fact = 'registered') AS address,
    anyIf(f.device_type, f.fact = 'registered') AS device_type,
    anyIf(f.devices, f.fact = 'registered') AS devices,
    anyIf(f.cpus, f.fact = 'registered') AS cpus,
    anyIf(f.memory_bytes, f.fact = 'registered') AS memory_bytes,
    anyIf(f.labels, f.fact = 'registered') AS labels,
    anyIf(f.ranks_running, f.fact = 'beat') AS ranks_running,
    anyIf(f.spool_lag_bytes, f.fact = 'beat') AS spool_lag_bytes,
    anyIf(f.reason, f.fact = 'lost') AS lost_reason,
    maxOrNullIf(f.at, f.fact = 'registered') AS registered_at,
    maxOrNullIf(f.at, f.fact = 'beat') AS last_heartbeat_at,
    maxOrNullIf(f.at, f.fact = 'lost') AS lost_at
FROM (SELECT * FROM node_facts FINAL) AS f
LEFT JOIN (
    SELECT node_id, restriction, reason, restricted_by FROM node_restrictions_rows FINAL ORDER BY node_id, version DESC LIMIT 1 BY node_id
) AS r ON r.node_id = f.node_id
GROUP BY node_id;

-- A pool, its machines, and the policy that decides about it now.
CREATE OR REPLACE VIEW pools AS
SELECT
    p.pool AS pool,
    p.partition AS partition,
    p.created_at AS created_at,
    n.nodes AS nodes,
    n.nodes_alive AS nodes_alive,
    n.nodes_closed AS nodes_closed,
    n.devices AS devices,
    if(c.version = 0, 'default', c.name) AS policy,
    c.version AS policy_version,
    c.user AS policy_user,
    c.applied_at AS policy_applied_at
FROM (SELECT * FROM pools_rows FINAL) AS p
LEFT JOIN (
    SELECT pool, count() AS nodes, countIf(state = 'ALIVE') AS nodes_alive, countIf(restriction != 'NONE') AS nodes_closed,
        sum(devices) AS devices
    FROM nodes GROUP BY pool
) AS n ON n.pool = p.pool
LEFT JOIN (
    SELECT pool, version, name, user, toNullable(applied_at) AS applied_at
    FROM policies_rows FINAL ORDER BY pool, version DESC LIMIT 1 BY pool
) AS c ON c.pool = p.pool;
