-- `request_id`: the event id of the request that a decision answers, so that who asked finds the answer to that request and to no other; empty
-- for every other decision, also one that was made on a request (a status, say), and for those from before. The index finds one among all.
ALTER TABLE decisions_rows ADD COLUMN IF NOT EXISTS request_id String CODEC(ZSTD) AFTER json;
ALTER TABLE decisions_rows ADD INDEX IF NOT EXISTS by_request request_id TYPE bloom_filter GRANULARITY 1;

CREATE OR REPLACE VIEW decisions AS SELECT * FROM decisions_rows FINAL;
