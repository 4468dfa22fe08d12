-- Positions that the steps of jobs used, by loader: one row a run of steps that used equally many positions, one after another. A run that goes
-- on is the same row with more `steps`; a regular program has one row an attempt. `fact` 'began': an attempt began with `first_step` steps
-- behind it. No TTL: what a model was trained on is asked years later.
CREATE TABLE IF NOT EXISTS data_positions_rows (
    job_id String,
    fact LowCardinality(String),
    epoch UInt32,
    loader UInt32,
    first_step UInt64,
    first_position UInt64,
    steps UInt64,
    per_step UInt64,
    padded UInt8,
    tracked UInt8,
    samples UInt64,
    seed LowCardinality(String),
    data_order LowCardinality(String),
    dataset_versions Array(String) CODEC(ZSTD),
    splits Array(String) CODEC(ZSTD),
    part_samples Array(UInt64) CODEC(ZSTD),
    weights Array(UInt64) CODEC(ZSTD),
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(steps) ORDER BY (job_id, fact, epoch, loader, first_step, first_position)
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 1000;

-- Shards that stretches of steps read, one row a shard in a stretch: in which of its steps, as runs, and how many samples. A stretch has 1,024
-- steps at most, and none goes beyond a save or the begin of an attempt.
CREATE TABLE IF NOT EXISTS shard_steps_rows (
    shard String CODEC(ZSTD),
    job_id String,
    epoch UInt32,
    loader UInt32,
    part UInt32,
    first_step UInt64,
    end_step UInt64,
    version UInt64,
    samples UInt64,
    run_first_steps Array(UInt64) CODEC(Delta, ZSTD),
    run_steps Array(UInt64) CODEC(ZSTD),
    dataset_version LowCardinality(String),
    split LowCardinality(String),
    tracked UInt8,
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64,
    INDEX by_job job_id TYPE bloom_filter GRANULARITY 1
) ENGINE = ReplacingMergeTree(version) ORDER BY (shard, job_id, epoch, loader, part, first_step)
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 1000;

-- The runs of every attempt; of one that a later attempt began before the end of, both parts: what counts, and what was thrown away.
CREATE OR REPLACE VIEW data_positions AS
SELECT r.job_id AS job_id, toUInt32(greatest(r.epoch, 1) - 1) AS attempt, r.epoch AS epoch, r.loader AS loader, r.tracked AS tracked,
    d.1 AS version, d.2 AS split, r.seed AS seed, d.3 AS weight, piece.1 AS first_step, piece.2 AS last_step,
    r.first_position + (piece.1 - r.first_step) * r.per_step AS first_position,
    r.first_position + (piece.2 + 1 - r.first_step) * r.per_step AS end_position, r.per_step AS samples_per_step, r.samples AS pass_samples,
    if(r.samples = 0, 0, intDiv(r.first_position + (piece.1 - r.first_step) * r.per_step, r.samples)) AS first_pass, r.padded AS padded,
    piece.3 AS superseded, d.4 AS split_samples, r.data_order AS data_order
FROM (SELECT * FROM data_positions_rows FINAL WHERE fact = 'read') AS r
LEFT JOIN (
    SELECT job_id, groupArray((epoch, first_step)) AS begun FROM data_positions_rows FINAL WHERE fact = 'began' GROUP BY job_id
) AS b ON b.job_id = r.job_id
ARRAY JOIN
    arrayFilter(p -> p.1 <= p.2, [
        (r.first_step, least(r.first_step + r.steps, arrayMin(arrayMap(x -> if(x.1 > r.epoch, x.2, toUInt64(9223372036854775807)), arrayPushBack(b.begun, (toUInt32(0), toUInt64(0)))))) - 1, toUInt8(0)),
        (greatest(r.first_step, arrayMin(arrayMap(x -> if(x.1 > r.epoch, x.2, toUInt64(9223372036854775807)), arrayPushBack(b.begun, (toUInt32(0), toUInt64(0)))))), r.first_step + r.steps - 1, toUInt8(1))
    ]) AS piece,
    arrayZip(r.dataset_versions, r.splits, r.weights, r.part_samples) AS d;

-- Shards by what read them: one row a shard, attempt and loader, for the steps that count and for those that were thrown away. `samples` is NULL
-- where a later attempt began within a stretch and has not reported it again.
CREATE OR REPLACE VIEW shard_reads AS
SELECT s.shard AS shard, s.version AS version, s.split AS split, s.job_id AS job_id, s.attempt AS attempt, s.epoch AS epoch, s.loader AS loader,
    s.tracked AS tracked, s.superseded AS superseded, arrayMin(arrayMap(x -> x.1, s.step_ranges)) AS first_step,
    arrayMax(arrayMap(x -> x.2, s.step_ranges)) AS last_step, arraySum(arrayMap(x -> x.2 + 1 - x.1, s.step_ranges)) AS steps, s.samples AS samples,
    s.step_ranges AS step_ranges,
    if(notEmpty(arrayFilter(x -> x.3 > first_step AND (x.2 = s.epoch OR (x.2 > s.epoch AND s.superseded = 0)), c.commits)),
        concat('checkpoint:', s.job_id, '@', toString(arrayMin(arrayMap(x -> x.1,
            arrayFilter(x -> x.3 > first_step AND (x.2 = s.epoch OR (x.2 > s.epoch AND s.superseded = 0)), c.commits))))), '') AS first_checkpoint
FROM (
    SELECT r.shard AS shard, r.dataset_version AS version, r.split AS split, r.job_id AS job_id, toUInt32(greatest(r.epoch, 1) - 1) AS attempt,
        r.epoch AS epoch, r.loader AS loader, max(r.tracked) AS tracked, piece.1 AS superseded,
        if(countIf(r.cut > r.first_step AND r.cut < r.end_step) > 0, NULL, sum(r.samples)) AS samples,
        arraySort(arrayFlatten(groupArray(piece.2))) AS step_ranges
    FROM (
        SELECT f.shard AS shard, f.dataset_version AS dataset_version, f.split AS split, f.job_id AS job_id, f.epoch AS epoch, f.loader AS loader,
            f.tracked AS tracked, f.samples AS samples, f.first_step AS first_step, f.end_step AS end_step,
            arrayZip(f.run_first_steps, f.run_steps) AS runs,
            arrayMin(arrayMap(x -> if(x.1 > f.epoch, x.2, toUInt64(9223372036854775807)), arrayPushBack(b.begun, (toUInt32(0), toUInt64(0))))) AS cut
        FROM (SELECT * FROM shard_steps_rows FINAL) AS f
        LEFT JOIN (
            SELECT job_id, groupArray((epoch, first_step)) AS begun FROM data_positions_rows FINAL WHERE fact = 'began' GROUP BY job_id
        ) AS b ON b.job_id = f.job_id
    ) AS r
    ARRAY JOIN
        arrayFilter(p -> notEmpty(p.2), [
            (toUInt8(0), arrayMap(x -> (x.1, least(x.1 + x.2, r.cut) - 1), arrayFilter(x -> x.1 < r.cut, r.runs))),
            (toUInt8(1), arrayMap(x -> (greatest(x.1, r.cut), x.1 + x.2 - 1), arrayFilter(x -> x.1 + x.2 > r.cut, r.runs)))
        ]) AS piece
    GROUP BY shard, version, split, job_id, epoch, loader, superseded
) AS s
LEFT JOIN (SELECT job_id, groupArray((commit, epoch, step)) AS commits FROM checkpoints GROUP BY job_id) AS c ON c.job_id = s.job_id;

-- What step {step} of {job_id} read, of each attempt that did it: positions, and the shards that they lie in.
CREATE OR REPLACE VIEW step_data AS
SELECT p.job_id AS job_id, toUInt64({step:UInt64}) AS step, p.attempt AS attempt, p.epoch AS epoch, p.loader AS loader, p.tracked AS tracked,
    p.version AS version, p.split AS split, p.seed AS seed, p.weight AS weight,
    p.first_position + ({step:UInt64} - p.first_step) * p.samples_per_step AS first_position, first_position + p.samples_per_step AS end_position,
    if(p.pass_samples = 0, 0, intDiv(first_position, p.pass_samples)) AS data_pass,
    if(p.pass_samples = 0, first_position, first_position % p.pass_samples) AS position, p.samples_per_step AS samples, p.pass_samples AS pass_samples,
    p.padded AS padded, p.superseded AS superseded, s.shards AS shards, p.data_order AS data_order
FROM (
    SELECT * FROM data_positions WHERE job_id = {job_id:String} AND first_step <= {step:UInt64} AND last_step >= {step:UInt64}
) AS p
LEFT JOIN (
    SELECT epoch, loader, dataset_version, split, arraySort(groupUniqArray(shard)) AS shards
    FROM shard_steps_rows FINAL
    WHERE job_id = {job_id:String} AND first_step <= {step:UInt64} AND end_step > {step:UInt64}
        AND arrayExists((f, n) -> f <= {step:UInt64} AND {step:UInt64} < f + n, run_first_steps, run_steps)
    GROUP BY epoch, loader, dataset_version, split
) AS s ON s.epoch = p.epoch AND s.loader = p.loader AND s.dataset_version = p.version AND s.split = p.split;

-- No such event is in what the lane has read so far, so no history is to be read again.
INSERT INTO lane_tables (lane, table_name)
SELECT 'ranks', name FROM (SELECT arrayJoin(['data_positions_rows', 'shard_steps_rows']) AS name)
WHERE (SELECT count() FROM positions WHERE lane = 'ranks') > 0;
