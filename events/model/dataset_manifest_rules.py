"""Rules across the fields of a dataset's manifest. Pure; loads no models, and takes what has the fields of one."""

import hashlib
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from trainhouse.events.model.dataset import DataField, Manifest


def check_sums(manifest: "Manifest") -> None:
    """Raises ValueError where hashes and sums of a manifest are not those that follow from its fields, splits and split rule."""
    if manifest.schema_hash != schema_hash_of(manifest.fields):
        raise ValueError("schema_hash is not the hash of the fields; the manifest was changed, publish again")
    if manifest.split_config_hash != hashlib.sha256(manifest.split_rule.encode()).hexdigest():
        raise ValueError("split_config_hash is not the hash of split_rule; the manifest was changed, publish again")
    for name, split in manifest.splits.items():
        if split.samples != sum(s.samples for s in split.shards) or split.bytes != sum(s.bytes for s in split.shards):
            raise ValueError(f"splits.{name}: its shards have other sums than it names; the manifest was changed, publish again")
    if manifest.row_count != sum(s.samples for s in manifest.splits.values()) or manifest.bytes != sum(
        s.bytes for s in manifest.splits.values()
    ):
        raise ValueError("row_count or bytes is not the sum over the splits; the manifest was changed, publish again")


def schema_hash_of(fields: "tuple[DataField, ...]") -> str:
    """Hex SHA-256 of the fields as canonical JSON."""
    return hashlib.sha256(_schema_json(fields)).hexdigest()


def schema_bytes(fields: "tuple[DataField, ...]") -> int:
    """Size of the fields as canonical JSON; 0 of none."""
    return len(_schema_json(fields)) if fields else 0


def _schema_json(fields: "tuple[DataField, ...]") -> bytes:
    return orjson.dumps([f.model_dump(mode="json") for f in fields], option=orjson.OPT_SORT_KEYS)
