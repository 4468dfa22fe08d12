"""The placement stage: a cycle's actions as decisions, refusals, and why the first job waits."""
