"""Checkpoints: content-addressed chunks and a fenced chain of manifests in an object store, written by `torch.distributed.checkpoint`.

Holds: a checkpoint exists when its manifest does, and a manifest is written last; importing this package imports neither torch
nor boto3. The way in: `checkpointer.Checkpointer` for training, `stores.s3.S3ObjectStore` for anybody who stores bytes.
Never: knows of jobs beyond their id, of schedulers, or of Kafka.
"""
