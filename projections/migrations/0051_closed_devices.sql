-- `version` of closed devices is the time in the journal, then the place in it (seq modulo 4096, ordinal): it was the seq alone, and a node's
-- pool may move to a partition whose journal is younger. Rows of before get the version that their record gives now; it is larger, so they
-- replace themselves, and a second run finds none.
INSERT INTO closed_devices_rows (node_id, version, at, device_ids, reason, source_topic, source_partition, source_offset)
SELECT node_id,
    toUInt64(toUnixTimestamp64Milli(at)) * 4194304 + (intDiv(version, 1048576) % 4096) * 1024 + least(version % 1048576, 1023),
    at, device_ids, reason, source_topic, source_partition, source_offset
FROM closed_devices_rows FINAL
WHERE version < toUInt64(toUnixTimestamp64Milli(at)) * 4194304
SETTINGS insert_deduplicate = 0;
