"""A cluster that demands TLS and a password: settings alone must be enough for our clients and for the stream processors."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from trainhouse.deploy.local.free_ports import LOOPBACK, free_port
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.deploy.local.servers.seaweedfs import StoreServer
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events import AskedVia, PoolCreated, RequestedBy, decode, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, read_to_end
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

pytestmark = pytest.mark.stack
ROLES = ("intake", "scheduler", "detector")
WAIT_S = 150.0
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="b" user_broker="b" user_train="house";'


class SecuredKafka(KafkaServer):
    """The same broker with one more listener, which wants SASL over TLS."""

    def __init__(self, folder: Path, keystore: Path) -> None:
        super().__init__(folder, port=free_port())
        self.secured_port = free_port()
        self._keystore = keystore

    def settings(self) -> dict[str, str]:
        plain = super().settings()
        listener = f",SECURED://{LOOPBACK}:{self.secured_port}"
        prefix = "listener.name.secured."
        return plain | {
            "listeners": plain["listeners"] + listener,
            "advertised.listeners": plain["advertised.listeners"] + listener,
            "listener.security.protocol.map": plain["listener.security.protocol.map"] + ",SECURED:SASL_SSL",
            prefix + "ssl.keystore.type": "PEM",
            prefix + "ssl.keystore.location": str(self._keystore),
            prefix + "sasl.enabled.mechanisms": "PLAIN",
            prefix + "plain.sasl.jaas.config": JAAS,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    tmp_path = tmp_path_factory.mktemp("secured")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert(LOOPBACK)
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    # Kafka reads PKCS #8 only.
    pkcs8 = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "broker.pem").write_bytes(pkcs8 + b"".join(c.bytes() for c in issued.cert_chain_pems))
    with SecuredKafka(tmp_path / "kafka", tmp_path / "broker.pem") as server:
        yield KafkaSettings(
            bootstrap=f"{LOOPBACK}:{server.secured_port}",
            security_protocol="SASL_SSL",
            sasl_mechanism="PLAIN",
            sasl_username="train",
            sasl_password="house",  # pragma: allowlist secret
            ssl_ca_location=str(tmp_path / "ca.pem"),
        )


@contextmanager
def process(role: str, settings: KafkaSettings, store: StoreServer, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One part, told everything by environment."""
    told = {f"TRAINHOUSE_KAFKA_{k.upper()}": str(v) for k, v in settings.model_dump().items() if v is not None}
    told |= {"TRAINHOUSE_S3_ENDPOINT": store.endpoint, "TRAINHOUSE_S3_ACCESS_KEY": store.keys.access_key}
    told |= {"TRAINHOUSE_S3_SECRET_KEY": store.keys.secret_key}
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")}
    with log.open("wb") as out:
        started = subprocess.Popen(
            [sys.executable, "-m", "trainhouse.cli.main", "run", role],
            env=clean | told,
            stdout=out,
            stderr=out,
            preexec_fn=die_with_parent(),
            cwd=log.parent,
        )
        try:
            yield started
        finally:
            started.terminate()
            started.wait(120)


def test_the_control_plane_runs_on_a_cluster_with_tls_and_passwords(secured: KafkaSettings, tmp_path: Path) -> None:
    assert len(create_topics(secured)) == len(topics.TOPICS)
    with ExitStack() as stack:
        store = stack.enter_context(StoreServer(tmp_path / "store"))
        parts = [stack.enter_context(process(r, secured, store, tmp_path / f"{r}.log")) for r in ROLES]
        producer = EventProducer(secured)
        pool = PoolCreated.model_validate({"pool": "default", "partition": 0})
        # Whoever may write to `trainhouse.jobs` is an operator; the records there name no person.
        settled = pool.model_copy(update={"requested_by": RequestedBy(name="unknown", via=AskedVia.OPERATOR)})
        producer.send(topics.JOBS, envelope_of(pool, id="pool", source="test", now_ms=1))
        producer.flush()
        reader = consumer(secured, **TO_END)
        deadline = time.monotonic() + WAIT_S
        # From jobs over admission and control to the scheduler's transactional effects: every kind of client took part.
        while not (found := list(read_to_end(reader, topics.POOLS, [0]))):
            assert time.monotonic() < deadline, "\n".join((tmp_path / f"{r}.log").read_text()[-1500:] for r in ROLES)
            time.sleep(0.3)
        reader.close()
        assert decode(found[0].value(), found[0].headers()).event == settled
        assert [part.poll() for part in parts] == [None] * len(ROLES)


def test_a_wrong_password_is_told(secured: KafkaSettings) -> None:
    with pytest.raises(BusUnavailableError, match=secured.bootstrap):
        create_topics(secured.model_copy(update={"sasl_password": "wrong"}), timeout_s=5)  # pragma: allowlist secret
