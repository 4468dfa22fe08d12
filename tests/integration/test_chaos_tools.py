"""The tools of the chaos suite do what they say: the proxy's cut lets nothing pass, the shifted clock jumps, a slowed process is slow, a
held one is stopped right before its request arrives, and brokers refuse by size and by time until they are set right.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.chaos import refusals
from tests.chaos.clock import Clocks
from tests.chaos.passage import Passage
from tests.chaos.proxy import Proxy
from tests.chaos.slow import Slowed
from tests.support.waiting import until
from trainhouse.events.bus.kafka import producer_config
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1024):
                connection.sendall(data)

    def serve() -> None:
        try:
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()
        except OSError:
            return  # closed

    threading.Thread(target=serve, daemon=True).start()
    yield int(listening.getsockname()[1])
    listening.close()


def said(connection: socket.socket, text: bytes, timeout_s: float = 20.0) -> bytes:
    connection.settimeout(timeout_s)
    connection.sendall(text)
    return connection.recv(1024)


def test_nothing_passes_a_cut_in_either_direction_and_all_of_it_does_after(echo: int) -> None:
    with Proxy(echo) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as before:
        assert said(before, b"one") == b"one"
        proxy.cut()
        with pytest.raises(TimeoutError):
            said(before, b"two", 0.5)
        with socket.create_connection(("127.0.0.1", proxy.port)) as during:
            with pytest.raises(TimeoutError):
                said(during, b"three", 0.3)
            proxy.heal()
            for connection, text in ((before, b"two"), (during, b"three")):
                connection.settimeout(20)
                assert connection.recv(1024) == text


def test_an_end_of_one_side_reaches_the_other(echo: int) -> None:
    with Proxy(echo) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(20)
        assert connection.recv(10) == b""


CLIENT = """
import socket, sys
def request(kind, text):
    body = kind.to_bytes(2, "big") + b"\\0\\7" + len(text).to_bytes(2, "big") + text
    return len(body).to_bytes(4, "big") + body
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as to:
    for line in sys.stdin:
        kind, text = line.split()
        to.sendall(request(int(kind), text.encode()))
        to.recv(1024)
        print(text, flush=True)
"""


def test_a_process_is_stopped_right_before_its_request_arrives_and_both_go_on_together(echo: int) -> None:
    with Passage(echo) as passage, started_client(passage.port) as held, started_client(passage.port) as other:

        def ask(client: subprocess.Popen[bytes], line: str) -> None:
            assert client.stdin is not None
            client.stdin.write(line.encode() + b"\n")
            client.stdin.flush()

        def answer(client: subprocess.Popen[bytes]) -> str:
            assert client.stdout is not None
            return client.stdout.readline().decode().strip()

        append, heartbeat = f"0 {topics.DECISIONS}", f"0 {topics.HEARTBEATS}"
        hold = passage.hold((held.pid,), "append", 600)
        for client, line in ((other, append), (held, heartbeat), (held, f"1 {topics.DECISIONS}")):
            ask(client, line)
            assert answer(client) == line.split()[1] and not hold.struck.is_set()
        ask(held, append)
        assert hold.struck.wait(60) and psutil.Process(held.pid).status() == psutil.STATUS_STOPPED
        ask(other, append)
        assert answer(other) == topics.DECISIONS and not hold.over.is_set(), "others pass meanwhile"
        passage.release(hold)
        assert hold.over.is_set() and answer(held) == topics.DECISIONS
        short = passage.hold((held.pid, other.pid), "append", 0.2)
        ask(other, append)
        assert short.over.wait(60) and answer(other) == topics.DECISIONS, "it goes on after its time by itself"
        never = passage.hold((held.pid,), "pointer", 600)
        passage.release(never)
        assert never.over.is_set() and not never.struck.is_set()


@contextmanager
def started_client(port: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", CLIENT, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        try:
            yield client
        finally:
            client.kill()


@pytest.mark.parametrize("way", refusals.WAYS)
def test_brokers_refuse_for_a_while_and_are_as_they_were_after(settings: KafkaSettings, way: str) -> None:
    topic = refusals.OF[way.split(" by ")[0]][0]

    def taken() -> KafkaError | None:
        answers: list[KafkaError | None] = []
        producer = Producer(producer_config(settings))
        producer.produce(topic, value=os.urandom(200), on_delivery=lambda error, _: answers.append(error))
        assert producer.flush(60) == 0
        return answers[0]

    def config() -> dict[str, str | None]:
        admin = AdminClient(settings.client_config())  # kept: an answer ends with its client
        (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in future.result(30).items()}

    before = config()
    assert refusals.refuse(settings, way)
    try:
        error = until(taken, "it is refused")
        assert error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD)
    finally:
        assert refusals.accept(settings, way)
    until(lambda: taken() is None, "it is taken again")
    assert config() == before


def test_a_shifted_clock_jumps_in_one_process_and_the_steady_one_does_not(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    program = "import time\nwhile input(): print(time.time_ns(), time.time(), time.monotonic_ns(), flush=True)"
    environment = os.environ | clocks.environment("beside")
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None

        def asked() -> tuple[float, float, float]:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(b"?\n")
            child.stdin.flush()
            nanoseconds, seconds, steady = child.stdout.readline().split()
            return int(nanoseconds) / 1e9 - time.time(), float(seconds) - time.time(), int(steady) / 1e9 - time.monotonic()

        for shift_s in (0.0, -40.0, 3600.0, 0.0):
            clocks.shift("beside", shift_s)
            off, off_too, steady_off = asked()
            assert abs(off - shift_s) < 5 and abs(off_too - shift_s) < 5 and abs(steady_off) < 5
        clocks.shift("somebody-else", 99.0)
        assert abs(asked()[0]) < 5
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.wait(60)


def test_a_slowed_process_gets_a_small_share_of_its_time_and_all_of_it_after() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            until(lambda: cpu_s(child.pid) > 0.05, "it runs")
            slowed = Slowed(child.pid, runs_s=0.01, stops_s=0.09)

            def is_slow() -> bool:
                """On a busy machine who lets it run for a moment may come late to stop it again: another while is looked at."""
                before, began = cpu_s(child.pid), time.monotonic()
                time.sleep(1.5)
                return cpu_s(child.pid) - before < 0.4 * (time.monotonic() - began)

            until(is_slow, "it is slow")
            slowed.end()
            after = cpu_s(child.pid)
            until(lambda: cpu_s(child.pid) > after + 0.3, "it runs as before")
        finally:
            child.send_signal(signal.SIGKILL)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
