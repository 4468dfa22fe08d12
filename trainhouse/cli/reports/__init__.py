"""Commands about the reports that people write."""
