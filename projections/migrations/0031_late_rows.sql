-- Finding what just came in, and what happened in a span, without reading years: metrics and output are ordered by job, so questions by
-- time need an index of their own. Least and largest value of a few granules each: nothing to keep, and they are told apart well, since a
-- job's rows came in together. For parts that are written or merged from now on; older ones are read whole until then.
ALTER TABLE step_metrics ADD INDEX IF NOT EXISTS by_inserted inserted_at TYPE minmax GRANULARITY 4;
ALTER TABLE step_metrics ADD INDEX IF NOT EXISTS by_time time TYPE minmax GRANULARITY 4;
ALTER TABLE logs ADD INDEX IF NOT EXISTS by_inserted inserted_at TYPE minmax GRANULARITY 4;
ALTER TABLE logs ADD INDEX IF NOT EXISTS by_time time TYPE minmax GRANULARITY 4;
