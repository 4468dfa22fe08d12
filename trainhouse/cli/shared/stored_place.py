"""Addresses of the form `s3://BUCKET/PREFIX`, in the stack's own object store."""

from typing import TYPE_CHECKING, Final

from trainhouse.cli.shared.exit_codes import CliError, Exit

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

S3_SCHEME: Final = "s3://"


def stored_place(uri: str) -> "tuple[S3ObjectStore, str]":
    """The bucket of an address, with the keys of the stack's store, and the prefix in it, which ends in a slash. Raises CliError."""
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

    bucket, _, prefix = uri.removeprefix(S3_SCHEME).partition("/")
    if not bucket or not prefix.strip("/"):
        raise CliError(f"{uri[:300]!r}: write s3://BUCKET/PREFIX", Exit.USAGE)
    return S3ObjectStore(StoreSettings().model_copy(update={"bucket": bucket})), prefix.strip("/") + "/"
