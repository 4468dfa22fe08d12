"""A listing of a store that says that more follows, and does not give it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from trainhouse.checkpointing.errors import ObjectStoreRefusedError
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore

OBJECT = "<Contents><Key>a/{0}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag><Size>1</Size></Contents>"


@pytest.mark.parametrize("ever", [True, False])
def test_a_page_without_keys_is_passed_by_its_token_once(ever: bool) -> None:
    """`ever`: the store gives the same token again and again."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = parse_qs(urlsplit(self.path).query).get("continuation-token", [""])[0]
            last = token == "next" and not ever
            more = OBJECT.format(1) if last else "<NextContinuationToken>next</NextContinuationToken>"
            body = f"<ListBucketResult><IsTruncated>{str(not last).lower()}</IsTruncated>{more}</ListBucketResult>".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            store = S3ObjectStore(
                StoreSettings(endpoint=f"http://127.0.0.1:{server.server_port}", bucket="b", access_key="k", secret_key="s", deadline_s=20)
            )
            if ever:
                with pytest.raises(ObjectStoreRefusedError, match="says that more follows"):
                    list(store.list("a/"))
            else:
                assert [found.key for found in store.list("a/")] == ["a/1"]
        finally:
            server.shutdown()
