"""Optuna's storages: an append-only log a name and project, and its finished trials as tracked runs."""
