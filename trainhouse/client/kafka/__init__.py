"""The backend over Kafka and SQL."""
