"""Objects of the store, read without the settings models and without boto3, whose import alone takes longer than most answers.

Holds: the same address and keys as `checkpointing.settings.StoreSettings` gives, or None where that has to decide: without keys, with
authorities or a lease of its own, or where the environment names a proxy or is Amazon's. A store that does not answer at once, and an
object that is missing or too large, raise NotQuickError: the whole store tries for longer, and has the words for it.
Never: writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from trainhouse.client.quick.quick_gateway import goes_around, is_plain
from trainhouse.client.quick.quick_sql import section_of
from trainhouse.client.quick.quick_topics import NotQuickError

if TYPE_CHECKING:
    from obstore.store import S3Store

CONNECT: Final = "2s"
ANSWER: Final = "10s"
DEFAULTS: Final = {"endpoint": "http://127.0.0.1:8333", "bucket": "trainhouse", "region": "us-east-1"}
KEYS: Final = ("access_key", "secret_key")
# What changes how others than ours are asked; how long we wait is for the whole store, which is asked where this one is not.
DECIDED: Final = ("ca_file", "lease")
# Variables of Amazon's clients that say nothing where address, region and keys are given; others might.
AMAZON: Final = "AWS_"
HARMLESS: Final = frozenset(
    {
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"),
        *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_DEFAULT_OUTPUT", "AWS_PAGER", "AWS_EC2_METADATA_DISABLED"),
    }
)
AUTHORITIES: Final = "AWS_CA_BUNDLE"


@dataclass(frozen=True)
class StoredObject:
    """An object's key, and when it was written, in seconds since 1970."""

    key: str
    modified_s: float


@dataclass(frozen=True)
class QuickStore:
    """One bucket. Connects when first used; methods block, and raise NotQuickError."""

    endpoint: str
    bucket: str
    region: str
    access_key: str
    secret_key: str = field(repr=False)

    def below(self, prefix: str) -> list[StoredObject]:
        """The objects below a prefix, which ends with /, by key."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            found = [
                StoredObject(each["path"], each["last_modified"].timestamp()) for page in obstore.list(self._store, prefix) for each in page
            ]
        except (BaseError, OSError, ValueError) as error:
            raise NotQuickError(f"{prefix}: {error}") from error
        return sorted(found, key=lambda each: each.key)

    def content(self, key: str, sha256: str, most_bytes: int) -> bytes:
        """The content of an object that has this hash, and no more than so many bytes."""
        import hashlib

        import obstore
        from obstore.exceptions import BaseError

        try:
            found = obstore.get(self._store, key)
            if found.meta["size"] > most_bytes:
                raise NotQuickError(f"{key} has {found.meta['size']} bytes")
            content = bytes(found.bytes())
        except (BaseError, OSError, ValueError) as error:
            raise NotQuickError(f"{key}: {error}") from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise NotQuickError(f"{key} has another hash")
        return content

    @cached_property
    def _store(self) -> "S3Store":
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        try:
            return S3Store(
                self.bucket,
                endpoint=self.endpoint,
                region=self.region,
                access_key_id=self.access_key,
                secret_access_key=self.secret_key,
                client_options={"allow_http": self.endpoint.startswith("http://"), "connect_timeout": CONNECT, "timeout": ANSWER},
                retry_config={"max_retries": 0},
            )
        except (BaseError, OSError, ValueError) as error:
            raise NotQuickError(str(error)) from error


def store_of(file: Mapping[str, Any], environment: Mapping[str, str]) -> QuickStore | None:
    """The store of a settings file and an environment; None where the settings models have to decide. Pure."""
    known = section_of(file, environment, "s3")
    named = DEFAULTS | {name: known[name] for name in (*DEFAULTS, *KEYS) if name in known}
    if not all(isinstance(value, str) and value and value.isascii() for value in named.values()) or any(name in known for name in DECIDED):
        return None
    if not all(name in named for name in KEYS) or not is_plain(named["endpoint"]) or goes_around(named["endpoint"], environment):
        return None
    harmless = HARMLESS | ({AUTHORITIES} if named["endpoint"].startswith("http://") else set())
    return None if any(name.startswith(AMAZON) and name not in harmless for name in environment) else QuickStore(**named)
