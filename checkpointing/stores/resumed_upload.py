"""Upload of a large file in parts, which goes on from the parts that an interrupted one left.

Holds: parts follow from the file's size alone, so that a later try cuts the same ones; one that is there, with this length and MD5, is not
sent again. Nothing is under the key until all parts are, and the bytes that were sent or compared have the hash that they are to have.
Memory has one part. Two that send the same file at once give one object.
Never: relies on a store that lists no uploads: there it begins anew.
"""

import hashlib
import os
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from trainhouse.checkpointing.errors import ObjectMissingError, ObjectStoreRefusedError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MOST_PARTS: Final = 10_000
"""Of one upload, as S3 has it."""
_TRIES: Final = 3


class Asking(Protocol):
    """Runs one operation on a client, again while the store is away. Raises what the store raises."""

    def __call__(self, what: str, key: str, operation: "Callable[[S3Client], Any]") -> Any: ...


class ResumedUpload:
    """Upload of files to one bucket, in parts of `part_bytes` and more. All methods block."""

    def __init__(self, ask: Asking, bucket: str, part_bytes: int) -> None:
        self._ask, self._bucket, self._part_bytes = ask, bucket, part_bytes

    def send(self, key: str, file: IO[bytes], sha256: str) -> None:
        """Stores what an open file holds, from its beginning. Raises ObjectStoreRefusedError where that has another hash."""
        size = file.seek(0, os.SEEK_END)
        part_bytes = max(self._part_bytes, -(-size // MOST_PARTS))
        for tries_left in reversed(range(_TRIES)):
            upload_id, there = self._under_way(key)
            try:
                self._send_parts(key, upload_id, there, file, part_bytes, sha256)
                return
            except ObjectMissingError:  # ended by another, which sent the same, or was given up
                if self._is_there(key, size):
                    return
                if not tries_left:
                    raise

    def _send_parts(
        self, key: str, upload_id: str, there: dict[int, tuple[int, str]], file: IO[bytes], part_bytes: int, sha256: str
    ) -> None:
        target: dict[str, Any] = {"Bucket": self._bucket, "Key": key, "UploadId": upload_id}
        whole, parts = hashlib.sha256(), list[Any]()
        file.seek(0)
        while content := file.read(part_bytes):
            whole.update(content)
            number, md5 = len(parts) + 1, hashlib.md5(content, usedforsecurity=False).hexdigest()
            etag = there[number][1] if there.get(number, (0, ""))[0] == len(content) else ""
            if etag.strip('"') != md5:
                etag = self._ask("put", key, _put_part(target | {"PartNumber": number}, content))["ETag"]
            parts.append({"PartNumber": number, "ETag": etag})
        if whole.hexdigest() != sha256:
            self._ask("abort", key, lambda s3: s3.abort_multipart_upload(**target))
            raise ObjectStoreRefusedError(f"{key} is not stored: the file has another SHA-256 than {sha256}; it changed, store it again")
        self._ask("put", key, lambda s3: s3.complete_multipart_upload(**target, MultipartUpload={"Parts": parts}))

    def _under_way(self, key: str) -> tuple[str, dict[int, tuple[int, str]]]:
        """The upload of this key that goes on, with length and ETag of its parts; else a new one."""
        found = self._newest(key)
        if found is not None:
            try:
                return found, self._parts(key, found)
            except (ObjectMissingError, ObjectStoreRefusedError):
                pass
        begun = self._ask("put", key, lambda s3: s3.create_multipart_upload(Bucket=self._bucket, Key=key))
        return str(begun["UploadId"]), {}

    def _newest(self, key: str) -> str | None:
        try:
            page = self._ask("list", key, lambda s3: s3.list_multipart_uploads(Bucket=self._bucket, Prefix=key))
        except (ObjectMissingError, ObjectStoreRefusedError):
            return None
        # Of one page: a key with a hash in it is the beginning of no other.
        uploads = [each for each in page.get("Uploads", []) if each["Key"] == key]
        return str(max(uploads, key=lambda each: each["Initiated"])["UploadId"]) if uploads else None

    def _parts(self, key: str, upload_id: str) -> dict[int, tuple[int, str]]:
        found, after = dict[int, tuple[int, str]](), 0
        while True:
            page = self._ask(
                "list", key, _list_parts({"Bucket": self._bucket, "Key": key, "UploadId": upload_id, "PartNumberMarker": after})
            )
            parts = page.get("Parts", [])
            found |= {each["PartNumber"]: (each["Size"], each["ETag"]) for each in parts}
            if not page.get("IsTruncated") or not parts:
                return found
            after = parts[-1]["PartNumber"]

    def _is_there(self, key: str, size: int) -> bool:
        try:
            found = self._ask("head", key, lambda s3: s3.head_object(Bucket=self._bucket, Key=key))
        except ObjectMissingError:
            return False
        return bool(found["ContentLength"] == size)


def _put_part(request: dict[str, Any], content: bytes) -> "Callable[[S3Client], Any]":
    return lambda s3: s3.upload_part(**request, Body=content)


def _list_parts(request: dict[str, Any]) -> "Callable[[S3Client], Any]":
    return lambda s3: s3.list_parts(**request)
