-- How each node confines jobs, as it said when it registered last: which layers there are, and why others are not.
ALTER TABLE node_facts ADD COLUMN IF NOT EXISTS isolation String DEFAULT '';

CREATE OR REPLACE VIEW node_isolation AS
SELECT node_id, JSONExtractString(said, 'mode') AS mode, JSONExtractBool(said, 'complete') AS complete,
    JSONExtractString(said, 'reason') AS reason, JSONExtractString(layer_said, 'name') AS layer,
    JSONExtractBool(layer_said, 'on') AS is_on, JSONExtractString(layer_said, 'reason') AS layer_reason
FROM (
    SELECT node_id, argMax(isolation, version) AS said
    FROM node_facts WHERE fact = 'registered' GROUP BY node_id HAVING said != ''
) ARRAY JOIN JSONExtractArrayRaw(said, 'layers') AS layer_said;
