"""The object store port over the S3 protocol, by boto3.

Holds: a client belongs to one process and is made at its first use there, so a fork never shares connections; botocore tries
an operation a few times, and we try on until the deadline. A conditional put whose answer was lost is settled by reading back.
Never: takes "the store is away" for "the object is not there".
"""

import base64
import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar, cast

import boto3
import botocore.session
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, FlexibleChecksumError, NoCredentialsError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from trainhouse.checkpointing.errors import (
    DamagedError,
    ObjectChangedError,
    ObjectMissingError,
    ObjectStoreRefusedError,
    ObjectStoreUnavailableError,
)
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import Body, ObjectStat
from trainhouse.checkpointing.stores.resumed_upload import ResumedUpload
from trainhouse.checkpointing.stores.s3_clock import asked_s
from trainhouse.checkpointing.stores.s3_errors import TRANSPORT, is_absent, is_conflict, is_retryable, is_taken, why

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")
CLIENT_ATTEMPTS = 3
LONGEST_WAIT_S = 3.0
MOST_HASHED_BYTES = 5 * 10**9
"""Of one request, as S3 has it."""
PART_BYTES = 64 << 20
"""Of a file that goes up in parts which outlast an interruption, and more where they were too many."""
PIECE_BYTES = 2**20
"""Bytes that are received, hashed and copied at a time: as many as a cache holds."""


class _UnsettledError(Exception):
    """A conditional put that neither landed nor lost: to be tried again."""


LOST: tuple[type[Exception], ...] = (*TRANSPORT, _UnsettledError)


class S3ObjectStore:
    """One bucket. Cheap to make: nothing is opened before the first operation. `most_get_bytes`: a `get` of more raises DamagedError, and
    reads no more than that; None: any size."""

    def __init__(self, settings: StoreSettings, most_get_bytes: int | None = None) -> None:
        self._settings = settings
        self._most_get_bytes = most_get_bytes
        self._lock = threading.Lock()
        self._client_of: tuple[int, S3Client] | None = None
        part = settings.multipart_bytes // 2
        self._transfer = TransferConfig(
            multipart_threshold=settings.multipart_bytes, multipart_chunksize=part, max_concurrency=4, use_threads=True
        )

    @property
    def address(self) -> str:
        return self._settings.address

    def uri(self, key: str) -> str:
        return f"s3://{self._settings.bucket}/{key}"

    def put(self, key: str, body: Body) -> None:
        if len(body) > self._settings.multipart_bytes:
            self._until_deadline("put", key, lambda s3: self._upload(s3, key, body))
        else:
            self._until_deadline("put", key, lambda s3: s3.put_object(Bucket=self._bucket, Key=key, Body=bytes(body)))

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """Stores what an open file holds, from its beginning, in parts where it is large. Blocks; memory stays bounded."""
        self._until_deadline("put", key, lambda s3: self._upload_file(s3, key, file))

    def put_hashed(self, key: str, file: IO[bytes], sha256: str) -> None:
        """Stores what an open file holds, from its beginning, in one request: the store itself refuses other bytes than have this SHA-256.

        More than MOST_HASHED_BYTES go up in parts, whose hashes the store does not join: they are hashed here as they go, and one that was
        interrupted goes on from its parts, where uploads may be listed. Blocks; memory stays bounded.
        """
        if file.seek(0, os.SEEK_END) > MOST_HASHED_BYTES:
            self._uploads.send(key, file, sha256)
        else:
            self._until_deadline("put", key, lambda s3: self._put_hashed(s3, key, file, sha256))

    def put_if_absent(self, key: str, body: Body) -> bool:
        content = bytes(body)
        return self._until_deadline("conditional put", key, lambda s3: self._put_once(s3, key, content))

    def get(self, key: str) -> bytes:
        return self._until_deadline("get", key, lambda s3: self._read(s3, key))

    def get_into(self, key: str, room: memoryview) -> tuple[int, str]:
        return self._until_deadline("get", key, lambda s3: self._read_into(s3, key, room))

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        if length_bytes <= 0:
            return b""
        span = f"bytes={start}-{start + length_bytes - 1}"
        return self._until_deadline("get", key, lambda s3: s3.get_object(Bucket=self._bucket, Key=key, Range=span)["Body"].read())

    def get_same_range(self, key: str, start: int, length_bytes: int, etag: str) -> bytes:
        """As `get_range`, of the content with this ETag. Raises ObjectChangedError where the object has another one, or is gone."""
        span = f"bytes={start}-{start + length_bytes - 1}"
        try:
            return self._until_deadline("get", key, lambda s3: self._range_of(s3, key, span, etag))
        except ObjectMissingError as error:
            raise ObjectChangedError(f"{self.uri(key)} is gone") from error

    def stat(self, key: str) -> ObjectStat | None:
        try:
            found = self._until_deadline("head", key, lambda s3: s3.head_object(Bucket=self._bucket, Key=key))
        except ObjectMissingError:
            return None
        return ObjectStat(key, found["ContentLength"], found["LastModified"].timestamp(), asked_s(found), found.get("ETag", ""))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        # A page a time, each with the deadline of its own: the last key seen is where the next page begins. A page may have no keys
        # and more behind it; then its token is.
        place = {"StartAfter": start_after} if start_after else {}
        while True:
            page = self._until_deadline("list", prefix, partial(_list_page, {"Bucket": self._bucket, "Prefix": prefix} | place))
            listed_s = asked_s(page)
            keys = page.get("Contents", [])
            for found in keys:
                yield ObjectStat(found["Key"], found["Size"], found["LastModified"].timestamp(), listed_s, found.get("ETag", ""))
            if not page.get("IsTruncated"):
                return
            before, token = place, page.get("NextContinuationToken", "")
            place = {"StartAfter": keys[-1]["Key"]} if keys else {"ContinuationToken": token}
            if place == before or not (keys or token):
                raise ObjectStoreRefusedError(f"{self.address}: the list of {prefix!r} says that more follows, and does not give it")

    def delete(self, key: str) -> None:
        self._until_deadline("delete", key, lambda s3: s3.delete_object(Bucket=self._bucket, Key=key))

    def unfinished_uploads(self, prefix: str, older_than_s: float) -> Iterator[tuple[str, ObjectStat]]:
        return self._uploads.unfinished(prefix, older_than_s)

    def end_upload(self, key: str, upload_id: str) -> None:
        self._uploads.end(key, upload_id)

    @property
    def _uploads(self) -> ResumedUpload:
        return ResumedUpload(self._until_deadline, self._bucket, PART_BYTES)

    @property
    def _bucket(self) -> str:
        return self._settings.bucket

    def _upload(self, s3: "S3Client", key: str, body: Body) -> None:
        s3.upload_fileobj(io.BytesIO(body), self._bucket, key, Config=self._transfer)

    def _upload_file(self, s3: "S3Client", key: str, file: IO[bytes]) -> None:
        file.seek(0)
        # The transfer closes what it is given, and a second try needs it open.
        s3.upload_fileobj(cast(IO[bytes], _Kept(file)), self._bucket, key, Config=self._transfer)

    def _put_hashed(self, s3: "S3Client", key: str, file: IO[bytes], sha256: str) -> None:
        file.seek(0)
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        s3.put_object(Bucket=self._bucket, Key=key, Body=cast(IO[bytes], _Kept(file)), ChecksumSHA256=checksum)

    def _read(self, s3: "S3Client", key: str) -> bytes:
        answer, most_bytes = s3.get_object(Bucket=self._bucket, Key=key), self._most_get_bytes
        body = answer["Body"]
        if most_bytes is None:
            return body.read()
        size_bytes = answer.get("ContentLength", 0)
        # An answer that does not say its length is read no further than that; the end has to be seen, where its checksum is compared.
        content = b"" if size_bytes > most_bytes else body.read(most_bytes + 1)
        if max(size_bytes, len(content)) > most_bytes:
            body.close()
            raise DamagedError(f"{self.uri(key)} has {max(size_bytes, len(content))} bytes, and at most {most_bytes} are read of it here")
        return content

    def _read_into(self, s3: "S3Client", key: str, room: memoryview) -> tuple[int, str]:
        answer = s3.get_object(Bucket=self._bucket, Key=key)
        body, found, at = answer["Body"], hashlib.sha256(), 0
        if answer.get("ContentLength", 0) > len(room):
            body.close()
            return answer["ContentLength"], ""
        while piece := body.read(PIECE_BYTES):
            if at + len(piece) > len(room):  # an answer that did not say its length
                body.close()
                return at + len(piece), ""
            room[at : at + len(piece)] = piece
            found.update(piece)
            at += len(piece)
        return at, found.hexdigest()

    def _range_of(self, s3: "S3Client", key: str, span: str, etag: str) -> bytes:
        try:
            return s3.get_object(Bucket=self._bucket, Key=key, Range=span, IfMatch=etag)["Body"].read()
        except ClientError as error:
            if is_taken(error):
                raise ObjectChangedError(f"{self.uri(key)} was written anew") from error
            raise

    def _put_once(self, s3: "S3Client", key: str, content: bytes) -> bool:
        """One conditional put. Whatever is not a plain yes is settled by what lies under the key, or tried again."""
        try:
            s3.put_object(Bucket=self._bucket, Key=key, Body=content, IfNoneMatch="*")
            return True
        except TRANSPORT:
            settled = self._settle(s3, key, content)
        except ClientError as error:
            if not (is_taken(error) or is_conflict(error) or is_retryable(error)):
                raise
            settled = self._settle(s3, key, content)
        if settled is None:
            raise _UnsettledError(f"no answer to a conditional put of {key}, and nothing there yet")
        return settled

    def _settle(self, s3: "S3Client", key: str, content: bytes) -> bool | None:
        """Returns whether our content is there (also by an earlier try whose answer was lost); None: nothing is there yet."""
        try:
            return s3.get_object(Bucket=self._bucket, Key=key)["Body"].read() == content
        except ClientError as error:
            if is_absent(error):
                return None
            raise

    def _until_deadline(self, what: str, key: str, operation: "Callable[[S3Client], T]") -> T:
        """Runs one operation, again while the store is away, at most `deadline_s` long."""
        retrying = Retrying(
            stop=stop_after_delay(self._settings.deadline_s),
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_WAIT_S),
            retry=retry_if_exception(lambda error: isinstance(error, LOST) or is_retryable(error)),
            reraise=True,
        )
        try:
            return retrying(lambda: operation(self._client()))
        except ClientError as error:
            if is_absent(error):
                raise ObjectMissingError(f"{self.address}: no object {key!r}") from error
            if is_retryable(error):
                raise self._unavailable(what, key, error) from error
            raise ObjectStoreRefusedError(
                f"{self.address}: {what} of {key!r} refused ({why(error)}); check the bucket and the keys (TRAINHOUSE_S3_*)"
            ) from error
        except NoCredentialsError as error:
            raise ObjectStoreRefusedError(
                f"{self.address}: {what} of {key!r} needs keys, and none are set (TRAINHOUSE_S3_ACCESS_KEY, TRAINHOUSE_S3_SECRET_KEY)"
            ) from error
        except FlexibleChecksumError as error:
            raise DamagedError(f"{self.uri(key)}: what came is not what the store has a checksum of ({error})") from error
        except LOST as error:
            raise self._unavailable(what, key, error) from error

    def _unavailable(self, what: str, key: str, error: Exception) -> ObjectStoreUnavailableError:
        waited = f"{self._settings.deadline_s:g} s"
        return ObjectStoreUnavailableError(
            f"{self.address}: {what} of {key!r} did not succeed within {waited} ({why(error)}); is the store up? "
            f"TRAINHOUSE_S3_ENDPOINT names it, TRAINHOUSE_S3_DEADLINE_S is how long to try"
        )

    def _client(self) -> "S3Client":
        pid = os.getpid()
        with self._lock:
            if self._client_of is None or self._client_of[0] != pid:
                self._client_of = (pid, self._new_client())
            return self._client_of[1]

    def _new_client(self) -> "S3Client":
        return new_client(self._settings)


def new_client(given: StoreSettings, credentials: Credentials | None = None, signature_version: Any = None) -> "S3Client":
    """A client of the settings' store: with their keys, or with other credentials."""
    # A session of our own: boto3's default one is shared by threads without a lock.
    session = botocore.session.get_session()
    if credentials is not None:
        session._credentials = credentials  # type: ignore[attr-defined]  # there is no other way to give some that renew themselves
    named = credentials is None and signature_version is None
    secret = given.secret_key.get_secret_value() if given.secret_key is not None and named else None
    # By each body's checksum the store knows a torn one: SeaweedFS compares none with the hash in a signature. Where each request is signed
    # elsewhere, the checksum is signed there, and botocore's own would be a header that nobody has signed.
    checksums: Literal["when_supported", "when_required"] = "when_supported" if signature_version is None else "when_required"
    return boto3.session.Session(botocore_session=session).client(
        "s3",
        endpoint_url=given.endpoint,
        region_name=given.region,
        aws_access_key_id=given.access_key if named else None,
        aws_secret_access_key=secret,
        verify=given.ca_file,
        config=Config(
            connect_timeout=given.connect_timeout_s,
            read_timeout=given.read_timeout_s,
            max_pool_connections=given.connections,
            retries={"mode": "standard", "total_max_attempts": CLIENT_ATTEMPTS},
            s3={"addressing_style": "path" if given.endpoint else "auto"},
            request_checksum_calculation=checksums,
            response_checksum_validation=checksums,
            signature_version=signature_version,
        ),
    )


class _Kept(io.BufferedIOBase):
    """A file that is read through this and stays open."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int | None = -1, /) -> bytes:
        return self._file.read(-1 if size is None else size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


def _list_page(request: dict[str, Any], s3: "S3Client") -> Any:
    return s3.list_objects_v2(**request)
