"""Quick reads of the object store are signed as boto's own, and asked of the store that settings name alone."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from trainhouse.client.quick.quick_store import NOTHING, QuickStore, store_of

KEYS = {"access_key": "key", "secret_key": "a/secret+key"}  # pragma: allowlist secret
NAMED = {"endpoint": "http://127.0.0.1:8333", "bucket": "b", "region": "eu-1", **KEYS}


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/b/project-artifacts/p/manifests/aa.json", {}),
        ("/b/a b/ü+=&%.json", {}),
        ("/b", {"list-type": "2", "prefix": "project-artifacts/a b+/", "start-after": "x/ü"}),
    ],
)
def test_a_request_is_signed_as_boto_signs_it(path: str, query: dict[str, str]) -> None:
    store = QuickStore(NAMED["endpoint"], "b", "eu-1", KEYS["access_key"], KEYS["secret_key"])
    place = urllib.parse.quote(path, safe="/-_.~")
    encoded = "&".join(f"{name}={urllib.parse.quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
    signer: Any = botocore.auth.S3SigV4Auth(Credentials(KEYS["access_key"], KEYS["secret_key"]), "s3", "eu-1")
    request: Any = AWSRequest("GET", f"{NAMED['endpoint']}{place}" + (f"?{encoded}" if encoded else ""), headers={})
    request.headers["X-Amz-Content-SHA256"] = NOTHING
    signer.add_auth(request)
    ours = store._signed(place, encoded, "127.0.0.1:8333", request.context["timestamp"])
    assert ours["Authorization"] == request.headers["Authorization"]


def test_the_store_is_that_of_the_settings() -> None:
    found = store_of({"s3": NAMED | {"endpoint": "http://other:1"}}, {"TRAINHOUSE_S3_ENDPOINT": "http://127.0.0.1:8333/"})
    assert found == QuickStore(NAMED["endpoint"], "b", "eu-1", KEYS["access_key"], KEYS["secret_key"])
    assert KEYS["secret_key"] not in repr(found)


@pytest.mark.parametrize(
    "other",
    [
        {"endpoint": None},
        {"endpoint": "http://u:p@h:1"},  # pragma: allowlist secret
        {"endpoint": "http://h:1/below"},
        {"endpoint": "http://[h"},
        {"access_key": ""},
        {"secret_key": 1},
        {"lease": "/run/lease"},
        {"ca_file": "/nowhere"},
    ],
)
def test_other_ways_to_a_store_are_left_to_the_whole_store(other: dict[str, Any]) -> None:
    assert store_of({"s3": NAMED | other}, {}) is None
    assert store_of({"s3": NAMED}, {"HTTP_PROXY": "http://p:1"}) is None
    assert store_of({"s3": NAMED | {"endpoint": "https://h:1", "ca_file": str(Path(__file__))}}, {}) is not None
