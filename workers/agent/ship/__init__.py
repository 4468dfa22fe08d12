"""Shipping to Kafka: ranks' output and spools, the agent's own events, the outbox."""
