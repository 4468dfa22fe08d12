-- What a project may cost a month, for the alert cost-over-budget.
ALTER TABLE projects_rows ADD COLUMN IF NOT EXISTS cost_per_month Nullable(Float64);

CREATE OR REPLACE VIEW projects AS
SELECT project, description, by_members, length(member_names) AS members, length(purpose_names) AS purposes, highest_priority,
    submissions_per_minute, requests_per_minute, storage_gib, closed, version, user AS set_by, reason, applied_at AS set_at, running, queued,
    cost_per_month
FROM projects_rows FINAL ORDER BY project, version DESC LIMIT 1 BY project;
