"""The backend over Kafka and SQL."""

from trainhouse.client import library_logs  # noqa: F401
