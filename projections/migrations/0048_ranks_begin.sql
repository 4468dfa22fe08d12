-- Checkpoints were read by the lane of facts before they had one of their own, which goes on where that one stood: what was said until then
-- is in the tables already, and much of it was not signed.
INSERT INTO lane_tables (lane, table_name)
SELECT 'ranks', arrayJoin(['checkpoint_facts', 'lineage_rows', 'events_rows', 'job_environments_rows'])
WHERE (SELECT count() FROM positions WHERE lane = 'facts' AND topic = 'trainhouse.checkpoints') > 0
    AND (SELECT count() FROM positions WHERE lane = 'ranks') = 0;

INSERT INTO positions (lane, topic, partition, batch, from_offset, to_offset, done, version)
SELECT 'ranks', topic, partition, 1, 0, if(done = 1, to_offset, from_offset), 1, 3
FROM positions FINAL
WHERE lane = 'facts' AND topic = 'trainhouse.checkpoints'
    AND (SELECT count() FROM positions WHERE lane = 'ranks') = 0;
