"""Versions, manifests and the object store, as commands on datasets reach them; their errors as one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.stored_place import S3_SCHEME, stored_place

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.client.dataset_versions import DatasetVersions, PublishedVersion
    from trainhouse.client.quick.plain_events import Fields
    from trainhouse.events.model.dataset import Manifest
    from trainhouse.events.model.dataset_profile import ProfiledVersion
    from trainhouse.workers.data.publishing.bounded_files import SourceRoot

VersionArgument = Annotated[
    str, typer.Argument(metavar="NAME@VERSION", help="NAME@sha256:…, or NAME@1.2.0 by its tag.", show_default=False)
]
SHORT_CHARS = 12
"""Of a hash, in a list."""


@contextmanager
def explained(outcome: str = "") -> Iterator[None]:
    """Errors of data and of local files as one sentence, and what came of it."""
    import errno
    import tempfile

    from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError

    try:
        yield
    except InvalidDataError as error:
        raise CliError(f"{error}{outcome}", Exit.USAGE) from error
    except DamagedShardError as error:
        raise CliError(str(error), Exit.FAILED) from error
    except PermissionError as error:
        raise CliError(f"{error.filename}: it cannot be read: {error.strerror}{outcome}", Exit.USAGE) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise CliError(
            f"{tempfile.gettempdir()}: {error.strerror}; set TMPDIR to a folder with room for a shard of each split{outcome}",
            Exit.FAILED,
        ) from error


def object_store() -> "S3ObjectStore":
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

    return S3ObjectStore(StoreSettings())


def source_root(place: str) -> "SourceRoot":
    """The place of a source: a path, or `s3://BUCKET/PREFIX`. Raises CliError."""
    from pathlib import Path

    from trainhouse.workers.data.publishing.bounded_files import LocalRoot
    from trainhouse.workers.data.publishing.stored_files import StoredRoot

    if not place.startswith(S3_SCHEME):
        return LocalRoot(Path(place))
    objects, prefix = stored_place(place)
    return StoredRoot(objects, prefix.removesuffix("/"))


def dataset_versions() -> "DatasetVersions":
    """Every version of a dataset that was ever published. Blocks. Raises ClientError."""
    from trainhouse.client.dataset_versions import TYPES, DatasetVersions
    from trainhouse.client.quick.quick_reads import from_topics
    from trainhouse.events.wire.topics import DATASETS

    return from_topics(
        lambda topics: DatasetVersions.of(event for _, event in topics.read(DATASETS, *TYPES) if event is not None),
        lambda client: client.fleet().datasets(),
    )


def known_version(reference: str) -> "PublishedVersion":
    """A published version. Raises CliError."""
    from trainhouse.events.model.version_names import DatasetNameError

    try:
        found = dataset_versions().find(reference)
    except DatasetNameError as error:
        raise CliError(str(error), Exit.USAGE) from error
    if found is None:
        raise CliError(f"there is no version {reference}; `trainhouse data list` shows what there is", Exit.NOT_FOUND)
    return found


def opened_version(reference: str) -> "tuple[PublishedVersion, Manifest]":
    """A published version with its manifest. Raises CliError."""
    from trainhouse.workers.data.stored_versions import read_manifest

    known = known_version(reference)
    with explained():
        return known, read_manifest(object_store(), known.version.project, known.version.sha256)


def shown_version(reference: str) -> "tuple[PublishedVersion, Manifest | Fields]":
    """A published version with its manifest, to show it: without its model where it is plain. Raises CliError."""
    from trainhouse.client.quick.quick_manifests import dataset_manifest
    from trainhouse.client.quick.quick_reads import by_store_or

    known = known_version(reference)

    def whole() -> "Manifest":
        from trainhouse.workers.data.stored_versions import read_manifest

        with explained():
            return read_manifest(object_store(), known.version.project, known.version.sha256)

    return known, by_store_or(lambda store: dataset_manifest(store, known.version.project, known.version.sha256), whole)


def profiled_version(reference: str) -> "tuple[PublishedVersion, ProfiledVersion]":
    """A published version with its manifest and profiles. Raises CliError."""
    from trainhouse.workers.data.stored_versions import read_profiled

    known = known_version(reference)
    with explained():
        return known, read_profiled(object_store(), known.version.project, known.version.sha256)
