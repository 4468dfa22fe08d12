"""The scheduler's own parts beside the journal: vetting of control, explanations, live statuses."""
