"""A door before a real S3 store at which answers become late, wrong, refusals or errors, as a test says."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFUSAL = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>Access Denied.</Message>'
    b"<Resource>/</Resource><RequestId>1</RequestId></Error>"
)
BROKEN = REFUSAL.replace(b"AccessDenied", b"InternalError").replace(b"Access Denied.", b"We encountered an internal error.")


class Faults:
    """What becomes of requests; `is_hit(method, path)` chooses those of a fault. Counts them. Safe to share by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Ends all faults."""
        self.late_s = 0.0
        self.refuses: Callable[[str, str], bool] = _none
        self.lies: Callable[[str, str], bool] = _none
        self.fails_every = 0
        self.hits = 0
        self._calls = 0

    def fails(self) -> bool:
        """Whether this call is one that fails; counts it."""
        with self._lock:
            self._calls += 1
            return bool(self.fails_every) and self._calls % self.fails_every == 0

    def hit(self) -> None:
        """Counts a request that a fault met."""
        with self._lock:
            self.hits += 1


def _none(method: str, path: str) -> bool:
    return False


@contextmanager
def door_to(port: int) -> Iterator[tuple[str, Faults]]:
    """The address of a door to the store at a port of this machine, and its faults; none to begin with."""
    faults, ended = Faults(), threading.Event()

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if faults.late_s:
                faults.hit()
                ended.wait(faults.late_s)
            if faults.refuses(self.command, self.path):
                faults.hit()
                self._answer(403, {"Content-Type": "application/xml"}, REFUSAL)
                return
            if faults.fails():
                faults.hit()
                self._answer(500, {"Content-Type": "application/xml"}, BROKEN)
                return
            store = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "connection"):
                    store.putheader(name, value)
            store.endheaders(body)
            found = store.getresponse()
            content = found.read()
            if content and faults.lies(self.command, self.path):
                faults.hit()
                content = bytes(255 - byte for byte in content)
            kept = {n: v for n, v in found.getheaders() if n.lower() not in ("content-length", "transfer-encoding", "connection")}
            length = found.getheader("Content-Length") if self.command == "HEAD" else None
            self._answer(found.status, kept, content, length)
            store.close()

        def _answer(self, status: int, headers: dict[str, str], content: bytes, length: str | None = None) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", length if length is not None else str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", faults
        finally:
            ended.set()
            server.shutdown()
            thread.join()
