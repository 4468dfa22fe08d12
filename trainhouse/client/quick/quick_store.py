"""The object store of the settings, read without the settings models and without boto3: small objects, and lists of keys.

Holds: what is not plainly readable (an answer that is no success, keys that boto3 has to find, a store at Amazon's own addresses) raises
NotQuickError: the whole store then reads, tries again, and has the words for it.
Never: writes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from trainhouse.client.quick.quick_gateway import connection_to, goes_around
from trainhouse.client.quick.quick_sql import section_of
from trainhouse.client.quick.quick_topics import NotQuickError

if TYPE_CHECKING:
    from http.client import HTTPConnection

TIMEOUT_S: Final = 30.0
MOST_BYTES: Final = 16 << 20
"""Of one object; larger ones are read piece by piece, by the whole store."""
TEXTS: Final = ("endpoint", "access_key", "secret_key")
PASSED_OVER: Final = frozenset(
    {"bucket", "region", "ca_file", "sts_role_arn", "sts_endpoint", "connect_timeout_s", "read_timeout_s", "deadline_s", "connections"}
)
NOTHING: Final = hashlib.sha256(b"").hexdigest()
UNRESERVED: Final = "-_.~"
SIGNED: Final = "host;x-amz-content-sha256;x-amz-date"
IN_XML: Final = "{http://s3.amazonaws.com/doc/2006-03-01/}"


@dataclass
class QuickStore:
    """One bucket, for one command, in one thread. Connects when first used. `ca`: a trusted authority's file."""

    endpoint: str
    bucket: str
    region: str
    access_key: str
    secret_key: str = field(repr=False)
    ca: str = ""
    _connection: HTTPConnection | None = field(default=None, repr=False)

    def get(self, key: str) -> bytes:
        """The whole content. Blocks. Raises NotQuickError, also where there is none."""
        return self._asked(f"/{self.bucket}/{key}", {})

    def names(self, prefix: str) -> Iterator[tuple[str, float]]:
        """Keys below a prefix, in their order, and when each was written, in seconds since 1970. Blocks. Raises NotQuickError."""
        import xml.etree.ElementTree as ElementTree  # nosec B405  # the store's own answers, which are bounded

        after = ""
        while True:
            place = {"start-after": after} if after else {}
            try:
                page = ElementTree.fromstring(self._asked(f"/{self.bucket}", {"list-type": "2", "prefix": prefix} | place))  # nosec B314
                found = [(_text(each, "Key"), _seconds(_text(each, "LastModified"))) for each in page.iter(f"{IN_XML}Contents")]
                is_cut = _text(page, "IsTruncated") == "true"
            except (ElementTree.ParseError, ValueError) as error:
                raise NotQuickError(f"the store's list cannot be read: {error}") from error
            yield from found
            if not is_cut:
                return
            if not found or found[-1][0] <= after:
                raise NotQuickError("the store's list does not go on")
            after = found[-1][0]

    def _asked(self, path: str, query: Mapping[str, str]) -> bytes:
        import http.client

        parts = urllib.parse.urlsplit(self.endpoint)
        place = urllib.parse.quote(path, safe="/" + UNRESERVED)
        encoded = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(query.items()))
        headers = self._signed(place, encoded, parts.netloc, datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"))
        try:
            if self._connection is None:
                self._connection = connection_to(parts, self.ca, TIMEOUT_S)
            self._connection.request("GET", place + (f"?{encoded}" if encoded else ""), headers=headers)
            answer = self._connection.getresponse()
            content = answer.read(MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise NotQuickError(str(error)) from error
        if answer.status != 200 or len(content) > MOST_BYTES:
            raise NotQuickError(f"the store answers {answer.status} with {len(content)} bytes")
        return content

    def _signed(self, path: str, query: str, host: str, now: str) -> dict[str, str]:
        """Headers with the signature of AWS, version 4."""
        headers = {"host": host, "x-amz-content-sha256": NOTHING, "x-amz-date": now}
        listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = "\n".join(("GET", path, query, listed, SIGNED, NOTHING))
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        text = "\n".join(("AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()))
        key = f"AWS4{self.secret_key}".encode()
        for part in (now[:8], self.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        about = f"Credential={self.access_key}/{scope}, SignedHeaders={SIGNED}, Signature={signature}"
        return headers | {"Authorization": f"AWS4-HMAC-SHA256 {about}"}


def store_of(file: Mapping[str, Any], environment: Mapping[str, str]) -> QuickStore | None:
    """The store of a settings file and an environment; None where the settings models have to decide. Pure but for the look for a file."""
    known = section_of(file, environment, "s3")
    bucket, region, ca = known.get("bucket", "trainhouse"), known.get("region", "us-east-1"), known.get("ca_file", "")
    texts = [known.get(name) for name in TEXTS]
    if not all(isinstance(text, str) and text and text.isascii() and text.isprintable() for text in (*texts, bucket, region)):
        return None
    endpoint, access_key, secret_key = map(str, texts)
    if not _is_plain(endpoint):
        return None
    if set(known) - PASSED_OVER - set(TEXTS) - {"multipart_bytes"} or goes_around(endpoint, environment) or not isinstance(ca, str):
        return None
    if ca and not os.path.isfile(ca):
        return None
    return QuickStore(endpoint.rstrip("/"), bucket, region, access_key, secret_key, ca)


def _is_plain(endpoint: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(endpoint)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return known and parts.path in ("", "/") and "@" not in parts.netloc and not parts.query
    except ValueError:
        return False


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe=UNRESERVED)


def _text(page: Any, name: str) -> str:
    found = page.findtext(f"{IN_XML}{name}")
    if found is None:
        raise ValueError(f"it has no {name}")
    return str(found)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
