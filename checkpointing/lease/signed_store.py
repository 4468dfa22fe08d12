"""The object store port for a rank that has no key: boto3 makes the requests, the node's agent signs them.

Holds: bytes go between this process and the store. Whatever S3ObjectStore does about tries, deadlines and lost answers holds here as well;
every try is signed anew.
"""

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from botocore import UNSIGNED
from botocore.credentials import RefreshableCredentials
from botocore.httpchecksum import Crc32Checksum

from trainhouse.checkpointing.errors import KeysEndedError, ObjectStoreRefusedError
from trainhouse.checkpointing.lease.access_rule import Ask, Operation, hash_in, is_of_dataset, shared_chunk
from trainhouse.checkpointing.lease.lease_client import LeaseClient
from trainhouse.checkpointing.lease.signing import base_url
from trainhouse.checkpointing.lease.wire import SessionKeys
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import ObjectStat
from trainhouse.checkpointing.stores.s3 import S3ObjectStore, new_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_OPERATIONS = {
    "GetObject": Operation.GET,
    "HeadObject": Operation.HEAD,
    "ListObjectsV2": Operation.LIST,
    "PutObject": Operation.PUT,
    "DeleteObject": Operation.DELETE,
    "CreateMultipartUpload": Operation.CREATE_UPLOAD,
    "UploadPart": Operation.PUT_PART,
    "CompleteMultipartUpload": Operation.COMPLETE_UPLOAD,
    "AbortMultipartUpload": Operation.ABORT_UPLOAD,
}
# Keys that end are renewed this long before; a request that began before that is not cut off.
RENEW_S = 180
MUST_RENEW_S = 60


class LeasedObjectStore(S3ObjectStore):
    """The bucket as one attempt may use it. `settings.lease` is the agent's socket; keys in the settings are not used."""

    def __init__(self, settings: StoreSettings, one_by_one: bool = False) -> None:
        """`one_by_one`: have each request signed, also where there would be keys."""
        super().__init__(settings)
        self._one_by_one = one_by_one
        self._other: LeasedObjectStore | None = None

    def get(self, key: str) -> bytes:
        # To some stores what is not there is forbidden: then one asks.
        if not self._one_by_one and _is_named_one_by_one(key):
            return self._signed.get(key)
        try:
            return super().get(key)
        except ObjectStoreRefusedError:
            if self._one_by_one:
                raise
            return self._signed.get(key)

    def get_into(self, key: str, room: memoryview) -> tuple[int, str]:
        if not self._one_by_one and _is_named_one_by_one(key):
            return self._signed.get_into(key, room)
        try:
            return super().get_into(key, room)
        except ObjectStoreRefusedError:
            if self._one_by_one:
                raise
            return self._signed.get_into(key, room)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if not self._one_by_one and _is_named_one_by_one(key):
            return self._signed.get_range(key, start, length)
        return super().get_range(key, start, length)

    def stat(self, key: str) -> ObjectStat | None:
        if not self._one_by_one and _is_named_one_by_one(key):
            return self._signed.stat(key)
        try:
            return super().stat(key)
        except ObjectStoreRefusedError:
            if self._one_by_one:
                raise
            return self._signed.stat(key)

    @property
    def _signed(self) -> "LeasedObjectStore":
        """The same, with each request signed by the agent."""
        self._other = self._other or LeasedObjectStore(self._settings, one_by_one=True)
        return self._other

    def _new_client(self) -> "S3Client":
        assert self._settings.lease is not None, "settings without a lease"
        leave = LeaseClient(self._settings.lease)
        keys = None if self._one_by_one else leave.session()
        self._one_by_one = keys is None
        return _signed_by(leave, self._settings) if keys is None else new_client(self._settings, _renewed(leave, keys))


def open_store(settings: StoreSettings) -> S3ObjectStore:
    """The store as these settings reach it: by leave of the node's agent where they name its socket, else by keys. Opens nothing."""
    return LeasedObjectStore(settings) if settings.lease is not None else S3ObjectStore(settings)


def open_artifact_store(settings: StoreSettings) -> S3ObjectStore:
    """The store as `open_store` gives it, for artifacts: keys for a prefix cannot say that none is replaced, so the agent signs each."""
    return LeasedObjectStore(settings, one_by_one=True) if settings.lease is not None else S3ObjectStore(settings)


def _is_named_one_by_one(key: str) -> bool:
    """Whether keys for a prefix cannot say which of its objects may be read: shared chunks, and those of a version of a dataset."""
    return shared_chunk(key) is not None or is_of_dataset(key)


def _signed_by(leave: LeaseClient, settings: StoreSettings) -> "S3Client":
    base = base_url(settings)
    client = new_client(settings, signature_version=UNSIGNED)

    def sign(request: Any, operation_name: str, **_: Any) -> None:
        url, headers = leave.sign(_ask(request, operation_name, base))
        request.url = url
        for name, value in headers.items():
            del request.headers[name]
            request.headers[name] = value

    client.meta.events.register_first("before-sign.s3", sign)
    return client


def _renewed(leave: LeaseClient, first: SessionKeys) -> RefreshableCredentials:
    def metadata(keys: SessionKeys | None) -> dict[str, str]:
        if keys is None:
            raise KeysEndedError("this node's agent gives no keys for the store any more; the job's next attempt asks it for each request")
        found = {"access_key": keys["access_key"], "secret_key": keys["secret_key"], "token": keys["token"]}
        return found | {"expiry_time": keys["expires"]}

    return RefreshableCredentials.create_from_metadata(
        metadata(first), lambda: metadata(leave.session()), "lease", advisory_timeout=RENEW_S, mandatory_timeout=MUST_RENEW_S
    )


def _ask(request: Any, operation_name: str, base: str) -> Ask:
    """Translates the request that botocore is about to send. Raises ObjectStoreRefusedError for a request that no lease covers."""
    operation = _OPERATIONS.get(operation_name)
    if operation is None:
        raise ObjectStoreRefusedError(f"{operation_name}: ranks have no leave for it; give the job keys of its own as secrets")
    parts = urlsplit(request.url)
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    key = unquote(parts.path)[len(urlsplit(base).path) :]
    first, _, last = str(request.headers.get("Range", "")).removeprefix("bytes=").partition("-")
    return Ask(
        operation,
        query.get("prefix", "") if operation is Operation.LIST else key,
        start_after=query.get("start-after", ""),
        span=(int(first), int(last)) if first and last else None,
        if_absent="If-None-Match" in request.headers,
        upload_id=query.get("uploadId", ""),
        part=int(query.get("partNumber", "0")),
        crc32=Crc32Checksum().handle(request.data or b"") if operation is Operation.PUT and hash_in(key) is None else "",
    )
