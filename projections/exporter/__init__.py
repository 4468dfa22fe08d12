"""Tells others of jobs in their own formats: traces by OpenTelemetry, lineage by OpenLineage."""
