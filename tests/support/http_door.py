"""A port of this machine whose requests an app under test answers, for clients that speak HTTP by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from starlette.testclient import TestClient

_OF_CONNECTION = frozenset({"host", "connection", "transfer-encoding", "content-length", "content-encoding"})


@contextmanager
def door(client: TestClient) -> Iterator[str]:
    """Serves the app of a test client; gives the address."""

    class Passing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_CONNECTION}
            answer = client.request(self.command, self.path, headers=headers, content=self._body())
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name.lower() not in _OF_CONNECTION:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size_bytes := int(self.rfile.readline(), 16):
                body += self.rfile.read(size_bytes)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
