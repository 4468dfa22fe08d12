"""Commands about data: SQL, reports, alerts, journals, archives, projections."""
