"""Upload of a large file in parts, which goes on from the parts that an interrupted one left.

Holds: parts follow from the file's size alone, so that a later try cuts the same ones; one that is there, with this length and MD5, is not
sent again. Nothing is under the key until all parts are, and the bytes that were sent or compared have the hash that they are to have.
Memory has one part. Two that send the same file at once give one object. An upload that a later try could not find again, as ranks by
leave of their agent cannot, is ended by what ends the try: its parts would stay for ever.
Never: relies on a store that lists no uploads: there it begins anew.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from trainhouse.checkpointing.errors import CheckpointError, ObjectMissingError, ObjectStoreRefusedError
from trainhouse.checkpointing.stores.object_store import ObjectStat
from trainhouse.checkpointing.stores.s3_clock import asked_s

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
            found = self._to_go_on(key)
            upload_id, there = found or (self._begin(key), {})
            goes_on = found is not None
            try:
                goes_on = goes_on or (self._newest(key) == upload_id and self._parts_or_none(key, upload_id) is not None)
                self._send_parts(key, upload_id, there, file, part_bytes, sha256)
                return
            except ObjectMissingError:  # ended by another, which sent the same, or was given up
                if self._is_there(key, size):
                    return
                if not tries_left:
                    raise
            except BaseException:
                if not goes_on:
                    with suppress(CheckpointError):  # what ended the try is the one to know
                        self.end(key, upload_id)
                raise

    def unfinished(self, prefix: str, older_than_s: float) -> Iterator[tuple[str, ObjectStat]]:
        """Uploads of keys that begin with `prefix` which began longer ago: id, and the key with the bytes of the parts. Blocks."""
        place = dict[str, str]()
        while True:
            page = self._ask("list", prefix, _list_uploads({"Bucket": self._bucket, "Prefix": prefix} | place))
            began = [(each["Key"], each["UploadId"], each["Initiated"].timestamp()) for each in page.get("Uploads", [])]
            for key, upload_id, began_s in began:
                if asked_s(page) - began_s > older_than_s:
                    size_bytes = sum(size for size, _ in (self._parts_or_none(key, upload_id) or {}).values())
                    yield upload_id, ObjectStat(key, size_bytes, began_s, asked_s(page))
            before, place = place, {"KeyMarker": page.get("NextKeyMarker", ""), "UploadIdMarker": page.get("NextUploadIdMarker", "")}
            if not page.get("IsTruncated") or place == before:
                return

    def end(self, key: str, upload_id: str) -> None:
        """Ends one, and removes its parts; one that has ended is fine. Blocks."""
        with suppress(ObjectMissingError):
            self._ask("abort", key, lambda s3: s3.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id))

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
            self.end(key, upload_id)
            raise ObjectStoreRefusedError(f"{key} is not stored: the file has another SHA-256 than {sha256}; it changed, store it again")
        self._ask("put", key, lambda s3: s3.complete_multipart_upload(**target, MultipartUpload={"Parts": parts}))

    def _to_go_on(self, key: str) -> tuple[str, dict[int, tuple[int, str]]] | None:
        """The upload of this key that goes on, with length and ETag of its parts."""
        upload_id = self._newest(key)
        there = None if upload_id is None else self._parts_or_none(key, upload_id)
        return None if upload_id is None or there is None else (upload_id, there)

    def _begin(self, key: str) -> str:
        return str(self._ask("put", key, lambda s3: s3.create_multipart_upload(Bucket=self._bucket, Key=key))["UploadId"])

    def _parts_or_none(self, key: str, upload_id: str) -> dict[int, tuple[int, str]] | None:
        try:
            return self._parts(key, upload_id)
        except (ObjectMissingError, ObjectStoreRefusedError):
            return None

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


def _list_uploads(request: dict[str, Any]) -> "Callable[[S3Client], Any]":
    return lambda s3: s3.list_multipart_uploads(**request)
