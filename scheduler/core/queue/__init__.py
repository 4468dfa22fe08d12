"""Who is next: lanes of waiting jobs, scores, quotas, decaying use, expected run times."""
