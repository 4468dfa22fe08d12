"""Requests to an S3 store, signed for who has no key: AWS Signature 4 in the query, good for some minutes.

Holds: what is signed is built here from checked parts, never taken over as text; a header that makes the request what it is (If-None-Match,
Range) is part of the signature; so is a checksum of the body of a put, so that the store takes no other bytes: the SHA-256 of what goes
under its own hash, else the CRC32 that the rank states. Without one SeaweedFS takes the end of a connection for the end of a body, and a
process that is killed after the head leaves an empty object; an empty part, too, but that one is in no upload that is completed. Times are
the store's, whatever this machine's clock says.
Never: signs what `access_rule` was not asked about; that is the caller's part.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from trainhouse.checkpointing.lease.access_rule import Ask, Operation, hash_in
from trainhouse.checkpointing.settings import StoreSettings

SIGNED_FOR_S = 180
_TIMESTAMP = "%Y%m%dT%H%M%SZ"
_METHODS = {
    Operation.GET: "GET",
    Operation.HEAD: "HEAD",
    Operation.LIST: "GET",
    Operation.PUT: "PUT",
    Operation.DELETE: "DELETE",
    Operation.CREATE_UPLOAD: "POST",
    Operation.PUT_PART: "PUT",
    Operation.COMPLETE_UPLOAD: "POST",
    Operation.ABORT_UPLOAD: "DELETE",
}


@dataclass(frozen=True)
class Signed:
    """A request that the store takes as it is: these headers must go with it, unchanged."""

    method: str
    url: str
    headers: dict[str, str]


class Signer:
    """Signs for one bucket. `credentials` and `now_s` (seconds since 1970, the store's clock) are asked each time."""

    def __init__(self, settings: StoreSettings, credentials: Callable[[], ReadOnlyCredentials], now_s: Callable[[], float]) -> None:
        self._settings = settings
        self._base = base_url(settings)
        self._credentials = credentials
        self._now_s = now_s

    def sign(self, ask: Ask) -> Signed:
        """One request, good for SIGNED_FOR_S seconds. Microseconds."""
        headers = _headers(ask)
        request = AWSRequest(method=_METHODS[ask.operation], url=self._base + _path_and_query(ask), headers=dict(headers))
        _QueryAuth(self._credentials(), self._settings.region, self._now_s()).add_auth(request)
        return Signed(_METHODS[ask.operation], str(request.url), headers)


def base_url(settings: StoreSettings) -> str:
    """URL of the bucket, with a trailing slash."""
    if settings.endpoint:
        return f"{settings.endpoint.rstrip('/')}/{settings.bucket}/"
    host = f"s3.{settings.region}.amazonaws.com"
    return f"https://{host}/{settings.bucket}/" if "." in settings.bucket else f"https://{settings.bucket}.{host}/"


def _headers(ask: Ask) -> dict[str, str]:
    found = {}
    if ask.if_absent:
        found["if-none-match"] = "*"
    if ask.operation is Operation.PUT and (sha256 := hash_in(ask.key)) is not None:
        found["x-amz-checksum-sha256"] = base64.b64encode(bytes.fromhex(sha256)).decode()
    elif ask.crc32:
        found["x-amz-checksum-crc32"] = ask.crc32
    if ask.span is not None:
        found["range"] = f"bytes={ask.span[0]}-{ask.span[1]}"
    return found


def _path_and_query(ask: Ask) -> str:
    if ask.operation is Operation.LIST:
        query = {"encoding-type": "url", "list-type": "2", "prefix": ask.key} | (
            {"start-after": ask.start_after} if ask.start_after else {}
        )
        return "?" + urlencode(query, quote_via=quote, safe="")
    path = quote(ask.key, safe="/-_.~")
    if ask.operation is Operation.CREATE_UPLOAD:
        return f"{path}?uploads="
    query = {"partNumber": str(ask.part)} if ask.part else {}
    query |= {"uploadId": ask.upload_id} if ask.upload_id else {}
    return f"{path}?{urlencode(query, quote_via=quote, safe='')}" if query else path


class _QueryAuth(S3SigV4QueryAuth):
    """botocore's, at a given time instead of this machine's."""

    def __init__(self, credentials: ReadOnlyCredentials, region: str, now_s: float) -> None:
        super().__init__(credentials, "s3", region, expires=SIGNED_FOR_S)
        self._timestamp = datetime.fromtimestamp(now_s, UTC).strftime(_TIMESTAMP)

    def add_auth(self, request: AWSRequest) -> None:
        request.context["timestamp"] = self._timestamp
        self._modify_request_before_signing(request)  # type: ignore[attr-defined]
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))  # type: ignore[attr-defined]
