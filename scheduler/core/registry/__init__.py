"""Registry of models as a pure machine: versions, evidence, approvals, gates and stages."""
