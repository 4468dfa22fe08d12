"""Clients of Kafka: producer, consumers, administration, accounts."""
