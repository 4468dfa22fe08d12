"""The life of an attempt: eviction, end, evidence, whom a failure is attributed to, restart."""
