"""Studies over Kafka and the gateway: requests to the tuner, and reads."""
