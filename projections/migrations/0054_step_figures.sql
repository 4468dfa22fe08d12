-- What ranks measured of a job's steps last, in its newest attempt that measured any: means over its ranks of each rank's newest points.
-- A program's own `mfu` above 1.5 is in percent, as the alert mfu-low takes it.
CREATE OR REPLACE VIEW step_figures AS
SELECT f.job_id AS job_id, f.epoch AS epoch, f.at AS at, f.step_ms AS step_ms, f.data_ms AS data_ms, f.forward_ms AS forward_ms,
    f.backward_ms AS backward_ms, f.optimizer_ms AS optimizer_ms, f.stall_ms AS stall_ms, f.rest_ms AS rest_ms,
    f.stall_ms / nullIf(f.step_ms, 0) AS save_overhead, f.raw_mfu / if(f.raw_mfu > 1.5, 100, 1) AS mfu, f.pipeline_bubble AS pipeline_bubble,
    f.tokens_per_s AS tokens_per_s, f.gradient_norm AS gradient_norm, f.utilization_pct / 100 AS gpu_utilization,
    if(s.finished_at IS NULL, s.eta_s / 3600, NULL) AS estimated_remaining_hours
FROM (
    SELECT m.job_id AS job_id, m.epoch AS epoch, max(m.time) AS at,
        avgOrNullIf(m.value, m.metric = 'step/total_ms') AS step_ms, avgOrNullIf(m.value, m.metric = 'step/data_ms') AS data_ms,
        avgOrNullIf(m.value, m.metric = 'step/forward_ms') AS forward_ms, avgOrNullIf(m.value, m.metric = 'step/backward_ms') AS backward_ms,
        avgOrNullIf(m.value, m.metric = 'step/optimizer_ms') AS optimizer_ms, avgOrNullIf(m.value, m.metric = 'step/stall_ms') AS stall_ms,
        avgOrNullIf(m.value, m.metric = 'step/rest_ms') AS rest_ms, avgOrNullIf(m.value, m.metric = 'mfu') AS raw_mfu,
        avgOrNullIf(m.value, m.metric = 'pipeline/bubble') AS pipeline_bubble, maxOrNullIf(m.value, m.metric = 'tokens_per_s') AS tokens_per_s,
        avgOrNullIf(m.value, m.metric = 'gradient_norm') AS gradient_norm,
        avgOrNullIf(m.value, m.metric = 'system/device_utilization_pct') AS utilization_pct
    FROM metric_latest AS m
    WHERE m.metric IN ('step/total_ms', 'step/data_ms', 'step/forward_ms', 'step/backward_ms', 'step/optimizer_ms', 'step/stall_ms', 'step/rest_ms',
            'mfu', 'pipeline/bubble', 'tokens_per_s', 'gradient_norm', 'system/device_utilization_pct')
        AND isFinite(m.value)
        AND (m.job_id, m.epoch) IN (SELECT l.job_id, max(l.epoch) FROM metric_latest AS l WHERE l.metric = 'step/total_ms' GROUP BY l.job_id)
    GROUP BY m.job_id, m.epoch
) AS f
LEFT JOIN job_status AS s ON s.job_id = f.job_id;

-- Traces make the lane of ranks a second writer of artifacts_rows. None is in what it has read so far, so no history is to be read again.
INSERT INTO lane_tables (lane, table_name)
SELECT 'ranks', 'artifacts_rows'
WHERE (SELECT count() FROM positions WHERE lane = 'ranks') > 0;
