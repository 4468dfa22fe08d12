"""Interactive work: terminals, notebooks and ssh in jobs."""
