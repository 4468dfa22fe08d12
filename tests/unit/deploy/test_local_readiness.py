"""Whether a part answers: a check says yes or no, whoever holds the part's port."""

from __future__ import annotations

import socket
import threading

import pytest

from trainhouse.deploy.local.supervision.readiness import answers, clickhouse


@pytest.mark.parametrize(
    ("says", "is_there", "is_clickhouse"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nOk.\n", True, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1\n", True, False),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nOk.\n", False, False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nOk.\n", False, False),
        (b"220 another server\r\n\r\n", False, False),
        (b"", False, False),
    ],
)
def test_a_check_never_raises(says: bytes, is_there: bool, is_clickhouse: bool) -> None:
    def speak() -> None:
        for _ in range(2):
            talk, _ = listening.accept()
            with talk:
                talk.recv(65_536)
                talk.sendall(says)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=speak, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert answers(url)() is is_there
        assert clickhouse(url)() is is_clickhouse
    assert answers(url)() is False and clickhouse(url)() is False
