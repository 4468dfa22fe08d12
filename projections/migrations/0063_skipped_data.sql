-- Positions that later attempts of a job leave out, since its loss diverged over them: `fact` 'skipped', of the attempt that diverged.
ALTER TABLE data_positions_rows ADD COLUMN IF NOT EXISTS end_position UInt64 AFTER per_step;
ALTER TABLE data_positions_rows ADD COLUMN IF NOT EXISTS reason String CODEC(ZSTD) AFTER end_position;

-- The runs of every attempt; of one that a later attempt began before the end of, both parts: what counts, and what was thrown away. Beside them, `skipped`, the steps whose
-- positions later attempts leave out since the loss diverged over them; steps that a later attempt has behind it are none of these.
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
