-- Which tables have all the history of a lane. A table that is new to a lane which stands somewhere already is not among them: it catches
-- up first. No TTL, as in positions: losing a row would mean reading topics once more.
CREATE TABLE IF NOT EXISTS lane_tables (
    lane LowCardinality(String),
    table_name String,
    at DateTime64(3, 'UTC') MATERIALIZED now64(3)
) ENGINE = ReplacingMergeTree ORDER BY (lane, table_name)
SETTINGS non_replicated_deduplication_window = 1000;

-- What catches up: the tables, and up to where each partition is to be read for them. How far it is stands in positions, under its name.
CREATE TABLE IF NOT EXISTS catch_ups (
    lane LowCardinality(String),
    name String,
    table_names Array(String),
    topic LowCardinality(String),
    partition UInt32,
    end_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (lane, name, topic, partition)
SETTINGS non_replicated_deduplication_window = 1000;

-- Lanes that stood somewhere before this was noted had these tables from their beginning: those of 0001 to 0009, and the seconds that 0028
-- made of all points.
INSERT INTO lane_tables (lane, table_name)
SELECT p.lane, arrayJoin(multiIf(p.lane = 'metrics', ['step_metrics', 'step_metrics_1s_rows'], p.lane = 'logs', ['logs'], ['jobs_rows', 'statuses_rows',
    'rejections_rows', 'attempt_facts', 'rank_facts', 'checkpoint_facts', 'node_facts', 'pools_rows', 'policies_rows',
    'refused_changes_rows', 'node_restrictions_rows', 'reservations_rows', 'explanations_rows', 'events_rows', 'dead_letters_rows']))
FROM (SELECT DISTINCT lane FROM positions WHERE lane IN ('facts', 'beats', 'metrics', 'logs')) AS p
SETTINGS insert_deduplicate = 0;
