"""Models over Kafka and the object store: requests to the registry, and its port to the store."""
