"""The servers of a local stack: Kafka, the S3 store, their files and certificates."""
