"""Export of jobs in the formats of other systems: traces by OpenTelemetry, lineage by OpenLineage."""
