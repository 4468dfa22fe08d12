"""Commands about models: versions, stages, gates."""
