"""Commands about data: datasets, SQL, reports, alerts, journals, archives, projections."""
