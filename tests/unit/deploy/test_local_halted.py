"""`trainhouse ps` names partitions that stand still, from the figures that the parts serve."""

import socket
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from trainhouse.deploy.local.supervision.halted_partitions import halted, lines_of
from trainhouse.deploy.local.supervision.stack_parts import Part
from trainhouse.scheduler.stream.metrics import JournalMeters


def test_what_stands_still_is_named_with_what_to_do() -> None:
    registry = CollectorRegistry()
    meters = JournalMeters("scheduler", registry)
    for partition, fault, value in ((0, "STOPPED", 0), (2, "STOPPED", 1), (3, "PLACEMENT_FROZEN", 1)):
        meters.halted.labels(partition, fault).set(value)
    stopped, frozen = lines_of(generate_latest(registry).decode(), "scheduler")
    assert stopped.startswith("partition 2 of trainhouse.decisions decides nothing") and "trainhouse journal repair" in stopped
    assert frozen.startswith("partition 3 of trainhouse.decisions places nothing new")
    assert not list(lines_of("", "intake"))


GOOD = b'trainhouse_scheduler_partition_halted{partition="2",fault="STOPPED"} 1\n'


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n" + GOOD, 1),
        (b"HTTP/1.1 200 OK\r\n\r\n" + GOOD.replace(b'"2"', b'"2\x1b[2J"') + GOOD, 1),
        (b"HTTP/1.1 200 OK\r\n\r\n" + GOOD[:-20], 0),
        (b"HTTP/1.1 200 OK\r\n\r\n" + GOOD.replace(b'partition="2",', b""), 0),
        (b"HTTP/1.1 200 OK\r\n\r\n\x00 {{{\n", 0),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" + GOOD, 0),
        (b"SSH-2.0-x\r\n", 0),
        (b"", 0),
    ],
)
def test_whatever_answers_stops_no_ps_and_steers_no_terminal(answer: bytes, lines: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        part = Part("scheduler", "g", [], Path(), 0, metrics=f"http://127.0.0.1:{server.getsockname()[1]}/metrics")
        told = halted([part])
        thread.join()
    assert len(told) == lines and all(line.isprintable() for line in told)
