"""Distributions of the pieces of an output: what a piece keeps of them, and those of a version, merged of all its pieces.

Holds: the merged ones are those of all samples, one after another, in whatever order pieces come. Memory has one piece's beside the merged.
Never: reads more than its bound of what ranks wrote; beyond it a version has none.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import orjson
from pydantic import Field

from trainhouse.checkpointing.errors import ObjectMissingError
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.base import Model
from trainhouse.events.model.dataset import MOST_SPLITS, Manifest
from trainhouse.events.model.dataset_names import FieldName, SplitName
from trainhouse.events.model.dataset_profile import MOST_PROFILES_BYTES, VersionProfiles
from trainhouse.events.model.output_names import piece_profiles_key
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.field_profiles import FieldProfiles, KeptProfile

MOST_READ_BYTES: Final = 256 << 20
"""Of all pieces of an output together."""


class PieceProfiles(Model):
    """Distributions of a piece's samples, by split and field."""

    splits: dict[SplitName, dict[FieldName, KeptProfile]] = Field(default_factory=dict, max_length=MOST_SPLITS)

    def content(self) -> bytes | None:
        """The bytes that are kept, equal for equal samples; None where they are too many."""
        made = orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
        return made if len(made) <= MOST_PROFILES_BYTES else None


def merged_profiles(
    objects: ObjectStore, job_id: str, output: str, hashes: Iterable[str | None], manifest: Manifest
) -> VersionProfiles | None:
    """Distributions of a version of these pieces; None where one has none. Blocks. Raises InvalidDataError, and what the store raises."""
    merged, left_bytes = {name: FieldProfiles() for name in manifest.splits}, MOST_READ_BYTES
    for sha256 in hashes:
        if sha256 is None:
            return None
        content = _read(objects, piece_profiles_key(job_id, output, sha256), sha256, output)
        left_bytes -= len(content)
        if left_bytes < 0:
            return None
        try:
            for split, fields in PieceProfiles.model_validate(orjson.loads(content)).splits.items():
                merged[split].merge(fields)
        except (ValueError, KeyError) as error:
            raise _no_profiles(objects, piece_profiles_key(job_id, output, sha256), output) from error
    try:
        profiles = {name: each.profiles() for name, each in merged.items()}
        if any(f.samples > manifest.splits[name].samples for name, fields in profiles.items() for f in fields.values()):
            raise ValueError("more samples than the version has")
        return VersionProfiles(splits=profiles).bounded()
    except (ValueError, OverflowError) as error:
        raise InvalidDataError(
            f"the distributions of output {output} are not those of its samples ({error}): write outputs by session.output alone"
        ) from error


def _read(objects: ObjectStore, key: str, sha256: str, output: str) -> bytes:
    try:
        # One byte more than there may be, so that what is too long has another hash.
        content = objects.get_range(key, 0, MOST_PROFILES_BYTES + 1)
    except ObjectMissingError as error:
        raise _no_profiles(objects, key, output) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _no_profiles(objects, key, output)
    return content


def _no_profiles(objects: ObjectStore, key: str, output: str) -> InvalidDataError:
    return InvalidDataError(f"{objects.uri(key)} has no distributions of a piece of output {output}: write outputs by session.output alone")
