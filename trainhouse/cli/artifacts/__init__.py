"""Commands on artifacts."""
