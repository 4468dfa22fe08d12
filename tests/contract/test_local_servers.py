"""The embedded Kafka and S3: they do what Trainhouse needs of any Kafka and any S3, and outlive `kill -9`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from botocore.exceptions import ClientError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.waiting import until
from trainhouse.deploy.local.errors import JarsMissingError, NotReadyError, PortBusyError
from trainhouse.deploy.local.free_ports import LOOPBACK, free_port, free_ports, holder, is_free, listening
from trainhouse.deploy.local.servers import jars
from trainhouse.deploy.local.servers.kafka_broker import MESSAGE_MAX_BYTES, KafkaServer
from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack


def make_topic(bootstrap: str, name: str, **config: str) -> None:
    topic = NewTopic(name, num_partitions=1, replication_factor=1, config=config)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # held: its futures fail when it is collected
    admin.create_topics([topic])[name].result(30)


def produce(bootstrap: str, topic: str, values: list[bytes], **config: object) -> list[KafkaError]:
    """Produce and wait for the acks; the errors of what was refused."""
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 20_000, **config})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(30) == 0
    return errors


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "fetch.message.max.bytes": MESSAGE_MAX_BYTES})
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []

    def all_came() -> bool:
        found.extend(message.value() for message in reader.consume(count, timeout=0.5) if not message.error())
        return len(found) >= count

    until(all_came, lambda: f"{len(found)} of {count} records came", every_s=0)
    reader.close()
    return found


def test_what_was_acknowledged_can_be_read(kafka: str) -> None:
    make_topic(kafka, "local.echo")
    values = [f"value {i}".encode() for i in range(1000)]
    assert produce(kafka, "local.echo", values) == []
    assert read(kafka, "local.echo", 1000) == values


def test_a_record_of_the_journals_limit_passes(kafka: str) -> None:
    make_topic(kafka, "local.big", **{"max.message.bytes": str(8 * 1024 * 1024)})
    value = os.urandom(8 * 1024 * 1024 - 1024)
    assert produce(kafka, "local.big", [value], **{"message.max.bytes": MESSAGE_MAX_BYTES}) == []
    assert read(kafka, "local.big", 1) == [value]


def test_no_topic_comes_into_being_by_producing_to_it(kafka: str) -> None:
    errors = produce(kafka, "local.typo", [b"lost"], **{"message.timeout.ms": 3000})
    assert [error.code() for error in errors] in ([KafkaError._UNKNOWN_TOPIC], [KafkaError._MSG_TIMED_OUT])
    assert "local.typo" not in AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=60).topics


def test_a_new_transactional_producer_fences_the_old_one(kafka: str) -> None:
    make_topic(kafka, "local.fenced")
    config = {"bootstrap.servers": kafka, "transactional.id": "local.owner"}
    old, new = Producer(config), Producer(config)
    old.init_transactions(30)
    old.begin_transaction()
    old.produce("local.fenced", b"old")
    old.flush(30)
    new.init_transactions(30)
    with pytest.raises(KafkaException):
        old.commit_transaction(30)
    new.begin_transaction()
    new.produce("local.fenced", b"new")
    new.commit_transaction(30)
    assert read(kafka, "local.fenced", 1) == [b"new"]  # consumers read committed by default


def test_a_group_member_that_dies_is_noticed_after_a_session_of_six_seconds(kafka: str) -> None:
    make_topic(kafka, "local.group")
    config = {"bootstrap.servers": kafka, "group.id": "local.group", "session.timeout.ms": 6000, "auto.offset.reset": "earliest"}
    member = Consumer(config)
    member.subscribe(["local.group"])

    def assigned() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    until(assigned, "a partition of its own", every_s=0)
    member.close()


def test_the_broker_keeps_what_it_acknowledged_when_killed(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka") as server:
        make_topic(server.bootstrap, "kept")
        values = [f"value {i}".encode() for i in range(5000)]
        assert produce(server.bootstrap, "kept", values) == []
        server.kill()
        server.start()
        assert read(server.bootstrap, "kept", 5000) == values
        assert produce(server.bootstrap, "kept", [b"after"]) == []


def test_the_store_returns_what_was_put(object_store_endpoint: StoreServer) -> None:
    client, bucket = object_store_endpoint.client(), object_store_endpoint.bucket
    body = os.urandom(3_000_000)
    client.put_object(Bucket=bucket, Key="local/echo", Body=body)
    assert client.get_object(Bucket=bucket, Key="local/echo")["Body"].read() == body
    assert [each["Key"] for each in client.list_objects_v2(Bucket=bucket, Prefix="local/echo")["Contents"]] == ["local/echo"]


@pytest.mark.parametrize("round_", range(5))
def test_of_eight_conditional_writers_one_wins(object_store_endpoint: StoreServer, round_: int) -> None:
    bucket, key = object_store_endpoint.bucket, f"local/claim-{round_}"
    start = threading.Barrier(8)

    def claim(writer: int) -> int | None:
        client = object_store_endpoint.client()
        start.wait()
        try:
            client.put_object(Bucket=bucket, Key=key, Body=str(writer).encode(), IfNoneMatch="*")
        except ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412)
            return None
        return writer

    with ThreadPoolExecutor(8) as pool:
        winners = [writer for writer in pool.map(claim, range(8)) if writer is not None]
    assert len(winners) == 1
    body = object_store_endpoint.client().get_object(Bucket=bucket, Key=key)["Body"].read()
    assert body == str(winners[0]).encode()


def test_another_key_may_not_read(object_store_endpoint: StoreServer) -> None:
    import boto3

    stranger = boto3.client(
        "s3",
        endpoint_url=object_store_endpoint.endpoint,
        aws_access_key_id="stranger",
        aws_secret_access_key="stranger",  # pragma: allowlist secret
        region_name="us-east-1",
    )
    with pytest.raises(ClientError) as refused:
        stranger.list_objects_v2(Bucket=object_store_endpoint.bucket)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_the_store_keeps_what_it_acknowledged_when_killed_and_moved_to_other_ports(tmp_path: Path) -> None:
    with StoreServer(tmp_path / "store") as server:
        for i in range(50):
            server.client().put_object(Bucket=server.bucket, Key=f"kept/{i}", Body=b"%d" % i)
        server.kill()
    with StoreServer(tmp_path / "store") as moved:
        for i in range(50):
            assert moved.client().get_object(Bucket=moved.bucket, Key=f"kept/{i}")["Body"].read() == b"%d" % i


def test_both_listen_on_loopback_only(kafka_server: KafkaServer, object_store_endpoint: StoreServer) -> None:
    for server, count in ((kafka_server, 2), (object_store_endpoint, 8)):
        found = listening({server.pid})
        assert {address for address, _ in found} == {LOOPBACK}
        assert len(found) == count  # every port is one that we gave


def test_the_memory_of_the_broker_is_bounded(kafka_server: KafkaServer) -> None:
    assert psutil.Process(kafka_server.pid).memory_info().rss < 1_200 * 1024 * 1024


def test_a_busy_port_is_an_error_that_names_its_holder(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
        assert f"pid {os.getpid()}" in holder(port)
        with pytest.raises(PortBusyError, match=rf"{port}.*pid {os.getpid()}"):
            KafkaServer(tmp_path / "kafka", port=port).start()


def test_a_server_that_ends_while_starting_says_why(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path / "kafka")
    server.prepare()
    (server.data_folder / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=other\n")
    with pytest.raises(NotReadyError, match="node"):
        server.start()


def test_free_ports_are_different_and_below_the_ephemeral_range() -> None:
    found = free_ports(30)
    assert len(set(found)) == 30
    assert all(port < 32_768 for port in found)
    assert is_free(free_port())


def test_a_server_ends_with_its_parent_even_if_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from trainhouse.deploy.local.servers.seaweedfs import StoreServer\n"
        "server = StoreServer(Path(sys.argv[1])); server.start(); print(server.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: has_ended(child), "the server ends")


def has_ended(process: psutil.Process) -> bool:
    """Whether nothing of it runs: who has it after its parent's end may be slow to notice."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_without_network_and_cache_the_error_says_how_to_prefetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"http://{LOOPBACK}:{free_port()}"  # a proxy that is not there: as without network
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, nowhere)
    with pytest.raises(JarsMissingError, match=r"deploy\.local\.prefetch"):
        jars.ensure(tmp_path)


def test_a_jar_that_is_not_the_locked_one_is_never_used(tmp_path: Path) -> None:
    jar = next(jars.locked())
    altered = jars.Jar(jar.group, jar.artifact, jar.version, "0" * 64)
    jars.ensure()
    with pytest.raises(JarsMissingError, match="sha256"):
        jars.fetch(altered, tmp_path, source=jars.cache_dir() / "maven")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    jars.fetch(jar, tmp_path, source=jars.cache_dir() / "maven")
    assert jars.sha256_of(tmp_path / jar.path) == jar.sha256
