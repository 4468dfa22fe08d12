"""Makes a node agent of settings and runs it until SIGTERM or SIGINT.

Holds: all wiring of the agent is here.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import psutil
import structlog
from confluent_kafka import Producer

from trainhouse.checkpointing.errors import ObjectMissingError
from trainhouse.checkpointing.peer_memory.holder_choice import Place
from trainhouse.checkpointing.peer_memory.holder_records import HolderRecords, rack_of
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.events.bus.kafka import EventProducer, producer_config
from trainhouse.events.bus.outage import ProducerWatch
from trainhouse.events.model.ids import NodeId
from trainhouse.events.runtime.clock import SteadyWall, wall_ms
from trainhouse.events.runtime.metrics_server import new_registry, serve
from trainhouse.events.security.key_files import kept_key
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.settings import KafkaSettings
from trainhouse.workers.agent.accesses import NodeAudit
from trainhouse.workers.agent.agent import Agent
from trainhouse.workers.agent.agent_metrics import AgentFigures
from trainhouse.workers.agent.components import Inbox, Message, Parts
from trainhouse.workers.agent.core import Noticed, ShutdownAsked
from trainhouse.workers.agent.debug.permission import ListedKeys, Permission
from trainhouse.workers.agent.debug.tunnels import Tunnels
from trainhouse.workers.agent.errors import InvalidSettingError, NotLaunchableError
from trainhouse.workers.agent.follower import Follower
from trainhouse.workers.agent.launch.attempt_dirs import FolderLock, StateFile
from trainhouse.workers.agent.launch.cleanup import Cleaner
from trainhouse.workers.agent.launch.code_fetch import CodeCache, Fetch
from trainhouse.workers.agent.launch.confining import Confiner, Hidden
from trainhouse.workers.agent.launch.environment import NodeSide, node_environment
from trainhouse.workers.agent.launch.grant_reader import GrantReader
from trainhouse.workers.agent.launch.launching import RankStarter
from trainhouse.workers.agent.launch.lease_socket import StoreLeases
from trainhouse.workers.agent.launch.rendezvous import RendezvousPorts
from trainhouse.workers.agent.launch.secretfiles import SecretFiles
from trainhouse.workers.agent.node.devices import CpuSlots, DeviceSource
from trainhouse.workers.agent.node.isolation_file import IsolationReporter
from trainhouse.workers.agent.node.metadata import MetadataService
from trainhouse.workers.agent.node.notice_sources import NoticeFile, NoticeSource, NoticeWatch
from trainhouse.workers.agent.node.registration import NodeFacts, Pulse, new_identity, read_boot_id, this_machine
from trainhouse.workers.agent.peer_memory.holder_desk import HolderDesk
from trainhouse.workers.agent.peer_memory.holder_keeper import HolderKeeper, HolderSettings
from trainhouse.workers.agent.probe.prober import ProbePlan, Prober
from trainhouse.workers.agent.rank_operations import Operations
from trainhouse.workers.agent.settings import NODE_KEY, AgentSettings, GatewayAddress
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.agent.ship.output_sealer import OutputSealer
from trainhouse.workers.agent.ship.own_states import OwnStatesUploader
from trainhouse.workers.agent.ship.reports import Reports
from trainhouse.workers.agent.ship.shipper import Shipper
from trainhouse.workers.agent.ship.spool_cover import SpoolCovers
from trainhouse.workers.launcher import Launcher, RankLauncher, start_time_environment
from trainhouse.workers.secretstore.resolving import Resolver
from trainhouse.workers.secretstore.settings import VaultSettings
from trainhouse.workers.secretstore.store import SecretStore

LAUNCH_THREADS = 4
MAX_INBOX = 10_000
HEARTBEAT_TIMEOUT_MS = 5_000
OWN_STATES_DEADLINE_S = 10.0
FETCH_BYTES = 8 * 1024 * 1024
RECORDS_DEADLINE_S = 5.0
GIB = 2**30
log = structlog.get_logger(__name__)


# All that an agent does at a time rests on this clock: a step of the machine's moves no deadline.
now_ms = SteadyWall()


def main(agent: AgentSettings | None = None, kafka: KafkaSettings | None = None, store: StoreSettings | None = None) -> None:
    """Runs one agent. Blocks until SIGTERM or SIGINT, and then until its ranks are stopped. Raises AgentError."""
    settings = (agent or AgentSettings()).resolved()
    lock = FolderLock(settings.dir)
    try:
        loop, inbox = build(settings, kafka or KafkaSettings(), store or StoreSettings())
        registry = new_registry()
        registry.register(AgentFigures(loop))
        serve(registry)

        def stop(*_: object) -> None:
            inbox.put(ShutdownAsked(round(settings.shutdown_grace_s * 1000)))

        def notice(*_: object) -> None:
            inbox.put(Noticed("signal", "SIGUSR1", now_ms() + round(settings.notice_deadline_s * 1000)))

        signal.signal(signal.SIGUSR1, notice)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        loop.run()
    finally:
        lock.release()


def build(settings: AgentSettings, kafka: KafkaSettings, store: StoreSettings, launcher: RankLauncher | None = None) -> tuple[Agent, Inbox]:
    """An agent that is ready to run, and where its inputs go. Opens sockets and folders, starts no thread and no process."""
    assert settings.node_id is not None, "give resolved settings"
    node_id, folder, inbox = settings.node_id, settings.dir, Inbox()
    boot_id = read_boot_id()
    devices = device_source(settings)
    ports = RendezvousPorts(settings.address, len(devices.devices()))
    identity = new_identity(node_id, boot_id, settings.pool)
    signing = kept_key(folder / NODE_KEY) if settings.sign_reports else None
    outbox, pulse = _outbox(kafka, node_id, signing), _pulse(kafka, signing)
    public_key = signing.public_key if signing else ""
    state_file = StateFile(folder)
    agents: list[Agent] = []
    reports = Reports(outbox, pulse, identity, lambda key: agents[0].acked(key), now_ms, lambda report: agents[0].waited(report))
    cpus, machine_bytes = this_machine()
    place, records, budget_bytes = own_place(settings), holder_records(settings, store), peer_memory_bytes(settings, machine_bytes)
    memory_bytes = machine_bytes - budget_bytes
    holding = HolderSettings(settings.address, settings.peer_memory_port, budget_bytes)
    confiner = confiner_of(settings, store, devices, memory_bytes)
    isolation = IsolationReporter(folder, node_id, confiner.report)
    emit = bounded(inbox, lambda: bool(agents) and agents[0].in_loop())
    audit = NodeAudit(node_id, emit, now_ms)
    secrets = secret_files(settings, audit)
    shipper = Shipper(folder, node_id, outbox, lambda: reports.partition, settings.log_limit_bytes, SpoolCovers(secrets).of)
    starter = RankStarter(
        launcher=launcher or Launcher(settings.interpreter or sys.executable, warm_start=settings.warm_start),
        agent_dir=folder,
        boot_id=boot_id,
        node=node_side(settings, store, devices.accelerators),
        code=CodeCache(folder / "code-cache", fetch_of(store), settings.keep_code_bytes),
        secrets=secrets,
        leases=StoreLeases(store, HolderDesk(place, records), GrantReader(kafka)),
        ports=ports,
        interpreter=settings.interpreter,
        image_digest=settings.image_digest,
        confiner=confiner,
    )
    parts = Parts(
        inbox=inbox,
        listener=Follower(kafka, node_id, settings.pool, emit, permission_of(settings), public_key, now_ms),
        outbox=outbox,
        reports=reports,
        shipper=shipper,
        starter=starter,
        operations=Operations(starter, emit, audit, Tunnels(GatewayAddress().ca, signing)),
        audit=audit,
        notices=NoticeWatch(notice_sources(settings), inbox.put, settings.notice_deadline_s, now_ms),
        prober=Prober(probe_plan(settings, store, devices), store_environment(store) | store_keys(store), now_ms),
        own_states=OwnStatesUploader(node_id, lambda: S3ObjectStore(store.model_copy(update={"deadline_s": OWN_STATES_DEADLINE_S}))),
        sealer=OutputSealer(node_id, lambda: S3ObjectStore(store), folder),
        cleaner=Cleaner(folder, settings.keep_attempts, settings.keep_attempts_bytes),
        facts=NodeFacts(settings.address, ports.ports, settings.labels, devices, cpus, memory_bytes, isolation, public_key),
        pulse=Pulse(settings.heartbeat_interval_s, devices, shipper.progress, starter.pid),
        state_file=state_file,
        workers=ThreadPoolExecutor(LAUNCH_THREADS, thread_name_prefix="launch"),
        poll_interval_s=settings.poll_interval_s,
        secrets_refresh_s=settings.secrets_refresh_s,
        holder=HolderKeeper(place, records, holding) if budget_bytes else None,
    )
    agents.append(Agent(state_file.load(identity), parts, now_ms))
    return agents[0], inbox


def own_place(settings: AgentSettings) -> Place:
    """Place of this node among the holders of chunks."""
    return Place(str(settings.node_id), rack_of(settings.labels.get("rack", "")))


def holder_records(settings: AgentSettings, store: StoreSettings) -> HolderRecords:
    """Records of the pool's holders."""
    return HolderRecords(S3ObjectStore(store.model_copy(update={"deadline_s": RECORDS_DEADLINE_S})), settings.pool)


def peer_memory_bytes(settings: AgentSettings, machine_bytes: int) -> int:
    """Returns the bytes of memory for other nodes' checkpoints. Raises InvalidSettingError."""
    wanted_bytes = round(settings.peer_memory_gib * GIB)
    if wanted_bytes > machine_bytes // 2:
        raise InvalidSettingError(
            f"TRAINHOUSE_AGENT_PEER_MEMORY_GIB is {settings.peer_memory_gib:g}, and this machine has {machine_bytes / GIB:.1f} GiB: "
            "give other nodes' checkpoints at most half of it"
        )
    return wanted_bytes


def _outbox(kafka: KafkaSettings, node_id: NodeId, signing: SigningKey | None) -> Outbox:
    """Producer of reports, which are kept until the brokers have them."""
    watch = ProducerWatch(kafka)
    config = producer_config(kafka, **{"message.timeout.ms": 0, "client.id": f"agent-{node_id}", "error_cb": watch.on_error})
    return Outbox(lambda: Producer(config), signing=signing, watch=watch)


def _pulse(kafka: KafkaSettings, signing: SigningKey | None) -> EventProducer:
    """Producer of heartbeats, which are dropped once they are late."""
    late = {"message.timeout.ms": HEARTBEAT_TIMEOUT_MS, "enable.idempotence": False, "queue.buffering.max.messages": 20, "linger.ms": 0}
    pulse = EventProducer(kafka, **late)
    pulse.signing = signing
    return pulse


def bounded(inbox: Inbox, in_loop: Callable[[], bool]) -> Callable[[Message], None]:
    """Puts into the inbox; waits while MAX_INBOX are in it, so that a flood stays with the brokers.

    `in_loop`: whether the caller is who empties it, and would wait for itself. What it puts is its answers to what it took out.
    """

    def put(message: Message) -> None:
        while inbox.qsize() >= MAX_INBOX and not in_loop():
            time.sleep(0.01)
        inbox.put(message)

    return put


def device_source(settings: AgentSettings) -> DeviceSource:
    """NVML's devices where there are any (or must be), else cpu slots."""
    from trainhouse.workers.agent.node.nvml import discover

    found = discover() if settings.accelerators != "none" else None
    if found is not None:
        return found
    if settings.accelerators == "nvml":
        raise InvalidSettingError(
            "TRAINHOUSE_AGENT_ACCELERATORS is nvml, but NVML finds no device: is the driver loaded? Or set it to none"
        )
    assert settings.node_id is not None
    return CpuSlots(settings.node_id, settings.slots)


def permission_of(settings: AgentSettings) -> Permission:
    """Returns the check of operations' signers. Raises InvalidSettingError. Warns where every writer of the topic is trusted."""
    keys = {} if settings.operations_keys is None else ListedKeys(settings.operations_keys)
    if not settings.require_signed:
        log.warning("operations need no signature here: whoever may write to their topic runs commands in jobs; see require_signed")
    return Permission(keys, settings.require_signed, wall_ms(), tuple(filter(None, (GatewayAddress().url, *settings.tunnel_gateways))))


def confiner_of(settings: AgentSettings, store: StoreSettings, devices: DeviceSource, memory_bytes: int) -> Confiner:
    """Returns the confinement of this node's jobs."""
    assert settings.secrets_dir is not None, "give resolved settings"
    shown = (*settings.job_paths, *((str(store.ca_file),) if store.ca_file is not None else ()))
    hidden = Hidden(settings.dir, settings.secrets_dir)
    return Confiner(settings.isolation, settings.interpreter or sys.executable, hidden, devices, memory_bytes, shown)


def notice_sources(settings: AgentSettings) -> list[NoticeSource]:
    """Sources of termination notices."""
    assert settings.notice_file is not None, "give resolved settings"
    sources: list[NoticeSource] = [NoticeFile(settings.notice_file, round(psutil.boot_time() * 1000))]
    if settings.notice_url is not None:
        sources.append(MetadataService(settings.notice_url, settings.notice_interval_s, settings.notice_resource))
    return sources


def probe_plan(settings: AgentSettings, store: StoreSettings, devices: DeviceSource) -> ProbePlan:
    """Returns the plan of a self test here; a store only where one is configured."""
    ids = tuple(str(d.device_id) for d in devices.devices()) if devices.accelerators else ()
    return ProbePlan(str(settings.node_id), str(settings.dir), settings.address, ids, bool(store.model_fields_set))


def node_side(settings: AgentSettings, store: StoreSettings, accelerators: bool) -> NodeSide:
    """Returns the node's additions to every rank's environment."""
    environ = node_environment(os.environ, start_time_environment(os.environ))
    return NodeSide(environ, store_environment(store), accelerators, settings.spool_limit_bytes, GatewayAddress().url)


def store_keys(store: StoreSettings) -> dict[str, str]:
    """The store's key, for processes that are part of the agent."""
    if store.access_key is None or store.secret_key is None:
        return {}
    return {"TRAINHOUSE_S3_ACCESS_KEY": store.access_key, "TRAINHOUSE_S3_SECRET_KEY": store.secret_key.get_secret_value()}


def store_environment(store: StoreSettings) -> dict[str, str]:
    """Environment variables of a rank's object store, without keys."""
    values = {"ENDPOINT": store.endpoint, "BUCKET": store.bucket, "REGION": store.region, "CA_FILE": store.ca_file}
    return {f"TRAINHOUSE_S3_{name}": value for name, value in values.items() if value is not None}


def secret_files(settings: AgentSettings, audit: NodeAudit) -> SecretFiles:
    """The secrets of this node, and those of its attempts."""
    assert settings.secrets_dir is not None and settings.secrets_key_file is not None, "give resolved settings"
    store = SecretStore(settings.secrets_dir, settings.secrets_key_file)
    return SecretFiles(store, settings.dir, Resolver(VaultSettings()), settings.secrets_runtime_dir, audit)


def fetch_of(store: StoreSettings) -> Fetch:
    """Reads an object by its URI `s3://bucket/key`, in pieces; of our own bucket code alone, since the agent's key opens more."""

    def fetch(uri: str) -> Iterator[bytes]:
        where = urlsplit(uri)
        if where.scheme != "s3" or not where.netloc or not where.path.strip("/"):
            raise NotLaunchableError(f"the code's URI {uri!r} is no s3://bucket/key", retryable=False)
        key = where.path.lstrip("/")
        if where.netloc == store.bucket and not key.startswith("code/"):
            raise NotLaunchableError(
                f"the code's URI {uri!r} names nothing under s3://{store.bucket}/code/: submit the code again", retryable=False
            )
        objects = S3ObjectStore(store.model_copy(update={"bucket": where.netloc}))
        found = objects.stat(key)
        if found is None:
            raise ObjectMissingError(f"{objects.address}: no object {key!r}")
        for start in range(0, found.size_bytes, FETCH_BYTES):
            yield objects.get_range(key, start, FETCH_BYTES)

    return fetch
