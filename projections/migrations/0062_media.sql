-- Images, tables, histograms, texts and audio among the files of jobs and runs, as their names have it: those of training programs and of
-- MLflow's log_image with a key (kind, key, step, time), and those that MLflow's client logs under a path of their own (no step).
CREATE OR REPLACE VIEW media AS
SELECT job_id,
    multiIf(notEmpty(parts), transform(parts[1], ['images', 'tables', 'histograms', 'texts', 'audio'], ['image', 'table', 'histogram', 'text', 'audio'], ''),
        ending IN ('png', 'jpg', 'jpeg', 'gif', 'webp'), 'image', ending = 'json', 'table', ending IN ('txt', 'md', 'log', 'csv', 'yaml', 'yml'), 'text',
        'audio') AS kind,
    if(notEmpty(parts), translate(parts[2], '~#', '//'), path) AS key,
    if(notEmpty(parts), toUInt64OrNull(parts[3]), NULL) AS step,
    toUInt32OrNull(extractGroups(parts[5], '^(\\d{1,10})-(\\d{1,6})$')[1]) AS rank,
    toUInt32OrNull(extractGroups(parts[5], '^(\\d{1,10})-(\\d{1,6})$')[2]) AS number,
    at, path, size_bytes, sha256, uri
FROM (
    SELECT job_id, path, at, uri, sha256, size_bytes, artifacts.kind AS ending,
        extractGroups(path, '^(images|tables|histograms|texts|audio)/([^/]+?)[+%]step[+%](\\d{1,19})[+%]timestamp[+%](\\d{1,15})[+%]([^/]+)[.][a-z0-9]+$') AS parts
    FROM artifacts
    WHERE artifacts.kind IN ('png', 'jpg', 'jpeg', 'gif', 'webp', 'json', 'txt', 'md', 'log', 'csv', 'yaml', 'yml', 'wav', 'mp3', 'ogg', 'flac')
        AND NOT endsWith(path, '+compressed.webp') AND NOT endsWith(path, '%compressed.webp') AND NOT startsWith(path, 'table_images/')
);
