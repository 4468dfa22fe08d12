"""Commands about studies."""
