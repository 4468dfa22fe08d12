"""Queue of waiting jobs: lanes, scores, quotas, decaying use, expected run times."""
