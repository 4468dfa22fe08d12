-- Specs without the values of their environment variables: names stay, each value is ***. Rows of before are rewritten; from now on rows come so.
-- A job is run again from the journal, not from these tables. RE2, on JSON without blank space, as events are written.
ALTER TABLE events_rows UPDATE json = arrayFold((text, env) -> replaceAll(text, env,
        replaceRegexpAll(env, '("[A-Za-z_][A-Za-z0-9_]*":)"(?:[^"\\\\]|\\\\.)*"', '\\1"***"')),
    extractAll(json, '"env":[{](?:"[A-Za-z_][A-Za-z0-9_]*":"(?:[^"\\\\]|\\\\.)*",?)+'), json)
WHERE position(json, '"env":{"') > 0 SETTINGS mutations_sync = 1;

ALTER TABLE decisions_rows UPDATE json = arrayFold((text, env) -> replaceAll(text, env,
        replaceRegexpAll(env, '("[A-Za-z_][A-Za-z0-9_]*":)"(?:[^"\\\\]|\\\\.)*"', '\\1"***"')),
    extractAll(json, '"env":[{](?:"[A-Za-z_][A-Za-z0-9_]*":"(?:[^"\\\\]|\\\\.)*",?)+'), json)
WHERE position(json, '"env":{"') > 0 SETTINGS mutations_sync = 1;

ALTER TABLE job_specs_rows UPDATE
    json = arrayFold((text, env) -> replaceAll(text, env,
        replaceRegexpAll(env, '("[A-Za-z_][A-Za-z0-9_]*":)"(?:[^"\\\\]|\\\\.)*"', '\\1"***"')),
    extractAll(json, '"env":[{](?:"[A-Za-z_][A-Za-z0-9_]*":"(?:[^"\\\\]|\\\\.)*",?)+'), json),
    config = mapApply((name, text) -> (name, if(startsWith(name, 'env.'), '***', text)), config)
WHERE position(json, '"env":{"') > 0 SETTINGS mutations_sync = 1;

-- What could not be read may be no JSON: it ends where an environment begins.
ALTER TABLE dead_letters_rows UPDATE head = concat(substring(head, 1, position(head, '"env"') + 4), ': ***')
WHERE position(head, '"env"') > 0 SETTINGS mutations_sync = 1;
