"""Kafka as the stream processors use it: the log, publishers, Faust apps, authentication."""
