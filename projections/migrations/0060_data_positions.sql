-- Positions that the steps of jobs used, by loader: one row a run of steps that used equally many positions, one after another. A run that goes
-- on is the same row with more `steps`; a regular program has one row an attempt. `fact` 'began': one row an attempt, whatever its ranks report;
-- it began with 2^53 - `steps` steps behind it, so that the least one stays. `fact` 'skipped', of the attempt that diverged: positions that
-- later attempts leave out, up to `end_position`. No TTL: what a model was trained on is asked years later.
CREATE TABLE IF NOT EXISTS data_positions_rows (
    job_id String,
    fact LowCardinality(String),
    epoch UInt32,
    loader UInt32,
    first_step UInt64,
    first_position UInt64,
    steps UInt64,
    per_step UInt64,
    end_position UInt64,
    reason String CODEC(ZSTD),
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

-- The runs of every attempt; of one that a later attempt began before the end of, both parts: what counts, and what was thrown away. Beside
-- them, `skipped`, the steps whose positions later attempts leave out since the loss diverged over them; steps that a later attempt has behind
-- it are none of these.
CREATE OR REPLACE VIEW data_positions AS
SELECT p.job_id AS job_id, toUInt32(greatest(p.epoch, 1) - 1) AS attempt, p.epoch AS epoch, p.loader AS loader, p.tracked AS tracked,
    part.1 AS version, part.2 AS split, p.seed AS seed, part.3 AS weight, p.piece.1 AS first_step, p.piece.2 AS last_step,
    p.begin + (p.piece.1 - p.run_step) * p.per_step AS first_position, p.begin + (p.piece.2 + 1 - p.run_step) * p.per_step AS end_position,
    p.per_step AS samples_per_step, p.samples AS pass_samples, if(p.samples = 0, 0, intDiv(first_position, p.samples)) AS first_pass,
    p.padded AS padded, p.piece.3 AS superseded, part.4 AS split_samples, p.data_order AS data_order,
    toUInt8(0) AS skipped, '' AS skip_reason
FROM (
    SELECT r.job_id AS job_id, r.epoch AS epoch, r.loader AS loader, r.tracked AS tracked, r.seed AS seed, r.first_position AS begin,
        r.first_step AS run_step, r.per_step AS per_step, r.samples AS samples, r.padded AS padded, r.data_order AS data_order,
        arrayZip(r.dataset_versions, r.splits, r.weights, r.part_samples) AS parts,
        arrayMin(arrayMap(x -> if(x.1 > r.epoch, x.2, toUInt64(9223372036854775807)), arrayPushBack(b.begun, (toUInt32(0), toUInt64(0))))) AS cut,
        arrayJoin(arrayMap(x -> (x.1, toUInt64(x.2 - 1), x.3), arrayFilter(x -> x.1 < x.2, [
            (r.first_step, toUInt64(least(r.first_step + r.steps, cut)), toUInt8(0)),
            (toUInt64(greatest(r.first_step, cut)), toUInt64(r.first_step + r.steps), toUInt8(1))
        ]))) AS piece
    FROM (SELECT * FROM data_positions_rows FINAL WHERE fact = 'read') AS r
    LEFT JOIN (
        SELECT job_id, groupArray((epoch, toUInt64(9007199254740992 - steps))) AS begun FROM data_positions_rows FINAL WHERE fact = 'began' GROUP BY job_id
    ) AS b ON b.job_id = r.job_id
) AS p
ARRAY JOIN p.parts AS part
UNION ALL
SELECT p.job_id AS job_id, toUInt32(greatest(p.epoch, 1) - 1) AS attempt, p.epoch AS epoch, p.loader AS loader, p.tracked AS tracked,
    part.1 AS version, part.2 AS split, p.seed AS seed, part.3 AS weight, p.begin_step AS first_step, toUInt64(p.end_step - 1) AS last_step,
    p.begin + (p.begin_step - p.run_step) * p.per_step AS first_position, p.end AS end_position, p.per_step AS samples_per_step,
    p.samples AS pass_samples, if(p.samples = 0, 0, intDiv(first_position, p.samples)) AS first_pass, toUInt8(0) AS padded,
    toUInt8(1) AS superseded, part.4 AS split_samples, p.data_order AS data_order, toUInt8(1) AS skipped, p.reason AS skip_reason
FROM (
    SELECT r.job_id AS job_id, r.epoch AS epoch, r.loader AS loader, r.tracked AS tracked, r.seed AS seed, r.first_position AS begin,
        r.end_position AS end, r.first_step AS run_step, toUInt64(r.first_step + r.steps) AS end_step, r.per_step AS per_step,
        r.samples AS samples, r.data_order AS data_order, r.reason AS reason,
        arrayZip(r.dataset_versions, r.splits, r.weights, r.part_samples) AS parts,
        arrayMin(arrayMap(x -> if(x.1 > r.epoch, x.2, toUInt64(9223372036854775807)), arrayPushBack(b.begun, (toUInt32(0), toUInt64(0))))) AS cut,
        toUInt64(greatest(r.first_step, if(cut = 9223372036854775807, 0, cut))) AS begin_step
    FROM (SELECT * FROM data_positions_rows FINAL WHERE fact = 'skipped') AS r
    LEFT JOIN (
        SELECT job_id, groupArray((epoch, toUInt64(9007199254740992 - steps))) AS begun FROM data_positions_rows FINAL WHERE fact = 'began' GROUP BY job_id
    ) AS b ON b.job_id = r.job_id
    WHERE begin_step < end_step
) AS p
ARRAY JOIN p.parts AS part;

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
        if(countIf(r.runs[1].1 < r.cut AND r.runs[-1].1 + r.runs[-1].2 > r.cut) > 0, NULL, sum(r.samples)) AS samples,
        arraySort(arrayFlatten(groupArray(piece.2))) AS step_ranges
    FROM (
        SELECT f.shard AS shard, f.dataset_version AS dataset_version, f.split AS split, f.job_id AS job_id, f.epoch AS epoch, f.loader AS loader,
            f.tracked AS tracked, f.samples AS samples,
            arrayZip(f.run_first_steps, f.run_steps) AS runs,
            arrayMin(arrayMap(x -> if(x.1 > f.epoch, x.2, toUInt64(9223372036854775807)), arrayPushBack(b.begun, (toUInt32(0), toUInt64(0))))) AS cut
        FROM (SELECT * FROM shard_steps_rows FINAL) AS f
        LEFT JOIN (
            SELECT job_id, groupArray((epoch, toUInt64(9007199254740992 - steps))) AS begun FROM data_positions_rows FINAL WHERE fact = 'began' GROUP BY job_id
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
    SELECT * FROM data_positions WHERE job_id = {job_id:String} AND first_step <= {step:UInt64} AND last_step >= {step:UInt64} AND NOT skipped
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
