"""Alerts: rules as data over verdicts and SQL, an engine without a clock, and the process that runs it."""
