"""Small manifests and facts of versions of datasets."""

import hashlib
from typing import Any

from trainhouse.events import DatasetVersion, PublishDataset
from trainhouse.events.model.dataset import DataField, Manifest, schema_hash_of, version_of

FIELDS = (DataField(name="txt", type="text"),)
RULE = '{"by":"hash","shares":{"train":1}}'


def manifest(**changes: Any) -> Manifest:
    """A manifest of one split of ten samples in one shard."""
    shard = {"sha256": "1" * 64, "index_sha256": "2" * 64, "bytes": 10_240, "samples": 10}
    fields = {
        "fields": FIELDS,
        "schema_hash": schema_hash_of(FIELDS),
        "splits": {"train": {"shards": [shard], "samples": 10, "bytes": 10_240}},
        "split_config_hash": hashlib.sha256(RULE.encode()).hexdigest(),
        "split_rule": RULE,
        "row_count": 10,
        "bytes": 10_240,
    }
    return Manifest.model_validate(fields | changes)


def version(dataset: str = "speech", project: str = "default", **changes: Any) -> DatasetVersion:
    """The facts of such a version."""
    return version_of(manifest(**changes), dataset, project)


def publish(of: DatasetVersion, semver: str | None = None, partitions: int = 1) -> PublishDataset:
    """A request to publish it."""
    return PublishDataset(version=of, semver=semver, user="ada", admission_partitions=partitions)
