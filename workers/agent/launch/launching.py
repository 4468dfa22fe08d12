"""Makes ranks of an allocation: folder, code, secrets, environment, sockets, then the launcher. Runs in a worker's thread.

Holds: the allocation is on disk before anything starts. A failure says what to change, and whether another node would fail too.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket

import structlog

from trainhouse.checkpointing.errors import CheckpointError, ObjectMissingError, ObjectStoreRefusedError
from trainhouse.events import GangAllocated, NodePlacement
from trainhouse.workers.agent.core import AgentInput, AttemptKey, Launch, LaunchDone, LaunchRefused
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.attempt_dirs import key_of, record_allocation
from trainhouse.workers.agent.launch.code_fetch import CodeCache
from trainhouse.workers.agent.launch.confining import Confiner
from trainhouse.workers.agent.launch.environment import NodeSide, RankFolders, command_of, rank_environment
from trainhouse.workers.agent.launch.lease_socket import StoreLeases
from trainhouse.workers.agent.launch.rendezvous import RendezvousPorts
from trainhouse.workers.agent.launch.secretfiles import AttemptSecrets, SecretFiles
from trainhouse.workers.launcher import AttemptPaths, LaunchError, RankLaunch, RankLauncher, Started, StoreSocket
from trainhouse.workers.launcher.processes import read_json

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RankStarter:
    """Everything that a start needs from this node."""

    launcher: RankLauncher
    agent_dir: Path
    boot_id: str
    node: NodeSide
    code: CodeCache
    secrets: SecretFiles
    ports: RendezvousPorts
    leases: StoreLeases | None = None
    interpreter: str | None = None
    image_digest: str | None = None
    confiner: Confiner | None = None

    def start(self, launch: Launch) -> AgentInput:
        """Starts this node's ranks and says how it went. Never raises. Blocks: tens of ms warm, seconds cold or for code to fetch."""
        began_s = time.monotonic()
        try:
            started = self._start(launch.allocation, launch.placement)
        except (NotLaunchableError, LaunchError) as error:
            return LaunchRefused(launch.key, str(error), error.retryable)
        except CheckpointError as error:
            known = isinstance(error, ObjectMissingError | ObjectStoreRefusedError)
            return LaunchRefused(launch.key, f"the job's code could not be fetched: {error}", retryable=not known)
        except Exception as error:
            return LaunchRefused(launch.key, f"the ranks could not be started: {type(error).__name__}: {error}", retryable=True)
        took_ms = round((time.monotonic() - began_s) * 1000)
        log.info("launched", attempt=str(launch.key), took_ms=took_ms, warm=started.warm, why_cold=started.why_cold)
        return LaunchDone(launch.key, started.warm)

    def pid(self, key: AttemptKey, rank: int) -> int | None:
        """The pid that a rank was given, dead or alive; None before it has one."""
        record = read_json(paths_of(self.agent_dir, key).rank(rank).pid)
        return None if record is None else int(record["pid"])

    def _start(self, allocation: GangAllocated, placement: NodePlacement) -> Started:
        paths = paths_of(self.agent_dir, key_of(allocation))
        record_allocation(paths, allocation, self.boot_id)
        wanted = allocation.spec.runtime.image_digest
        if wanted is not None and wanted != self.image_digest:
            raise NotLaunchableError(
                f"the job wants the image {wanted}; this node's agent runs in {self.image_digest or 'none'}", retryable=True
            )
        secrets = self.secrets.hand_out(allocation)
        if allocation.spec.code is not None:
            self.code.unpack(allocation.spec.code, paths.code)
        paths.code.mkdir(exist_ok=True)
        if self.leases is not None:
            self.leases.begin(allocation, paths)
        confinement = self.confiner.of(allocation, placement, paths, secrets.folder) if self.confiner is not None else None
        if not allocation.spec.shares_device:
            ranks = [self._rank(allocation, placement, rank, paths, secrets) for rank in placement.ranks]
            return self.launcher.start(paths, ranks, self._store(allocation, placement, None), confinement)
        # The slot's port is one attempt's alone, and several may share the slot: their only ranks find their stores on ports of their own.
        with self.ports.spare() as listener:
            allocation = allocation.model_copy(update={"master_port": listener.getsockname()[1]})
            ranks = [self._rank(allocation, placement, rank, paths, secrets) for rank in placement.ranks]
            return self.launcher.start(paths, ranks, self._store(allocation, placement, listener), confinement)

    def _rank(
        self, allocation: GangAllocated, placement: NodePlacement, rank: int, paths: AttemptPaths, secrets: AttemptSecrets
    ) -> RankLaunch:
        folder = paths.rank(rank).folder
        folder.mkdir(parents=True, exist_ok=True)
        spec = allocation.spec
        return RankLaunch(
            rank=rank,
            folder=folder,
            command=command_of(spec, rank),
            env=self.environment_of(allocation, placement, rank, secrets),
            cwd=paths.code,
            secrets=secrets.values,
            secrets_dir=secrets.folder,
            interpreter=spec.runtime.interpreter or self.interpreter,
        )

    def environment_of(self, allocation: GangAllocated, placement: NodePlacement, rank: int, secrets: AttemptSecrets) -> dict[str, str]:
        """The whole environment of one rank, without secrets. Its folders are there by now."""
        paths = paths_of(self.agent_dir, key_of(allocation))
        node = self.node if self.confiner is None else replace(self.node, environ=self.confiner.environ(self.node.environ))
        return rank_environment(allocation, placement, rank, folders_of(paths, rank, secrets), node)

    def _store(self, allocation: GangAllocated, placement: NodePlacement, listener: socket | None) -> StoreSocket | None:
        """The node of rank 0 hosts the gang's rendezvous store."""
        if placement.first_rank != 0:
            return None
        listener = listener or self.ports.socket_of(allocation.master_port)
        return StoreSocket(listener.fileno(), allocation.master_address, allocation.master_port, allocation.world_size)


def folders_of(paths: AttemptPaths, rank: int, secrets: AttemptSecrets) -> RankFolders:
    """Folders of a rank, as its environment names them."""
    return RankFolders(str(paths.folder), str(paths.rank(rank).own), str(secrets.folder or ""))


def paths_of(agent_dir: Path, key: AttemptKey) -> AttemptPaths:
    """The folder of an attempt."""
    return AttemptPaths.of(agent_dir, key.job_id, key.epoch)
