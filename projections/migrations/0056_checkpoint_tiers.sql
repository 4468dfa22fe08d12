-- Nodes that had chunks of a checkpoint in memory when it was committed. Each keeps a rank's newest save alone, so of older checkpoints
-- they say what was. The store has all of them.
ALTER TABLE checkpoint_facts ADD COLUMN IF NOT EXISTS memory_nodes Array(String) AFTER world_size;

-- One row a commit. One that is gone stays: PRUNED, with the time at which retention removed it, or DELETED, with the time and the user.
CREATE OR REPLACE VIEW checkpoints AS
SELECT
    job_id, toUInt64(f.commit) AS commit,
    argMinIf(f.step, f.at, f.fact = 'completed') AS step,
    argMinIf(f.attempt, f.at, f.fact = 'completed') AS attempt,
    argMinIf(f.epoch, f.at, f.fact = 'completed') AS epoch,
    multiIf(countIf(f.fact = 'deleted') > 0, 'DELETED', countIf(f.fact = 'pruned') > 0, 'PRUNED', 'COMPLETED') AS state,
    argMinIf(f.uri, f.at, f.fact = 'completed') AS uri,
    argMinIf(f.bytes_total, f.at, f.fact = 'completed') AS bytes_total,
    argMinIf(f.bytes_new, f.at, f.fact = 'completed') AS bytes_new,
    argMinIf(f.stage_s, f.at, f.fact = 'completed') AS stage_s,
    argMinIf(f.upload_s, f.at, f.fact = 'completed') AS upload_s,
    argMinIf(f.world_size, f.at, f.fact = 'completed') AS world_size,
    minIf(f.at, f.fact = 'completed') AS completed_at,
    minOrNullIf(f.at, f.fact = 'pruned') AS pruned_at,
    countIf(f.fact = 'restored') AS restores,
    argMinIf(f.memory_nodes, f.at, f.fact = 'completed') AS memory_nodes,
    minOrNullIf(f.at, f.fact = 'deleted') AS deleted_at,
    anyIf(f.reason, f.fact = 'deleted') AS deleted_by
FROM checkpoint_facts AS f FINAL
WHERE f.commit >= 0
GROUP BY job_id, f.commit
HAVING countIf(f.fact = 'completed') > 0;
