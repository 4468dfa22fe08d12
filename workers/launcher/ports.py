"""Port of the launcher to the node agent: the folders of an attempt, launches, and their results.

Holds: plain data and paths only; importing this module imports neither torch nor psutil. The folder layout is the contract between
the agent, the keeper (the parent of an attempt's ranks on one node) and the session inside a rank.
Never: does it read the environment or the clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainhouse.workers.confinement.plan import Confinement

# What the agent sets for the session, beside torchrun's own contract (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, …) and, where
# checkpoints are to go anywhere, the store's settings (TRAINHOUSE_S3_ENDPOINT, TRAINHOUSE_S3_BUCKET …):
JOB_ID = "TRAINHOUSE_JOB_ID"
ATTEMPT = "TRAINHOUSE_ATTEMPT"
EPOCH = "TRAINHOUSE_EPOCH"
SPEC_SHA256 = "TRAINHOUSE_SPEC_SHA256"
ATTEMPT_DIR = "TRAINHOUSE_ATTEMPT_DIR"  # AttemptPaths.folder: spec.json and request.json lie there
RANK_DIR = "TRAINHOUSE_RANK_DIR"  # RankPaths.folder: the spool lies there
BACKEND = "TRAINHOUSE_BACKEND"  # gloo | nccl
SPOOL_LIMIT_BYTES = "TRAINHOUSE_SPOOL_LIMIT_BYTES"  # optional
SECRETS_DIR = "TRAINHOUSE_SECRETS_DIR"  # optional: on tmpfs, a file for each secret with its newest value  # pragma: allowlist secret
RECORDER = "flight_recorder_"
NUMBERED = "attempt-"  # and the number of the attempt, one less than its epoch
STORE_LEASE = "TRAINHOUSE_S3_LEASE"  # AttemptPaths.store_socket: where the store's requests are signed; ranks have no key of it
PARALLELISM = "TRAINHOUSE_PARALLELISM"  # optional: the layout at this number of ranks, as JSON: {"dp": 2, "fsdp": 1, "tp": 2, "pp": 1}
TRAINING = "TRAINHOUSE_TRAINING"  # optional: the spec's `training` as JSON: {"precision": "bf16", "clip_norm": 1.0}
DATASET = "TRAINHOUSE_DATASET"  # optional: the version of a dataset that the job reads, NAME@sha256:…
PROJECT = "TRAINHOUSE_PROJECT"  # optional, outside of Trainhouse: the project in which that version was published
ACCEPTED_BAD = "TRAINHOUSE_ACCEPTED_BAD"  # optional: bad samples with which a person let the job go on
SKIP_DATA = "TRAINHOUSE_SKIP_DATA"  # optional: data that loaders leave out, as JSON: a list of the fields of SkippedData
RESTORE_AT_MOST = "TRAINHOUSE_RESTORE_AT_MOST"  # optional: begin from no newer commit of the job's chain than this one


@dataclass(frozen=True)
class RankPaths:
    """The files of one rank of one attempt."""

    folder: Path

    @property
    def stdout(self) -> Path:
        return self.folder / "stdout.log"

    @property
    def stderr(self) -> Path:
        return self.folder / "stderr.log"

    @property
    def stacks(self) -> Path:
        """Its Python stack as the agent took it when the gang was found to hang."""
        return self.folder / "stacks.log"

    @property
    def own(self) -> Path:
        """Folder that the rank itself writes to. A confined rank has a folder for it, and cannot change its keeper's records beside it."""
        own = self.folder / "own"
        return own if own.is_dir() and not own.is_symlink() else self.folder

    @property
    def spool(self) -> Path:
        """Metrics, progress and checkpoint events; see `workers/spool.py`."""
        return self.own / "spool.jsonl"

    @property
    def interactive(self) -> Path:
        """Socket of an interactive job's program, to which its agent connects its users."""
        return self.own / "interactive.sock"

    @property
    def trace_status(self) -> Path:
        """State of the profile that was asked of the rank, replaced atomically by its session."""
        return self.own / "profile.json"

    @property
    def pid(self) -> Path:
        """`{"pid", "create_time"}`, written by the keeper right after the fork; read it with `read_process`."""
        return self.folder / "pid.json"

    @property
    def exit(self) -> Path:
        """`{"exit_code", "signal", "at_ms", "note"}`, written once, atomically, by the keeper, also when the agent is gone."""
        return self.folder / "exit.json"

    def recorder(self, rank: int) -> Path:
        """Path of the dump of torch's flight recorder: TORCH_FR_DUMP_TEMP_FILE with the rank behind it."""
        return self.own / f"{RECORDER}{rank}"


@dataclass(frozen=True)
class AttemptPaths:
    """The folder of one attempt (one epoch of one job) on one node."""

    folder: Path

    @classmethod
    def of(cls, agent_dir: Path, job_id: str, epoch: int) -> "AttemptPaths":
        """Named by the attempt's number; the folder that an agent of before made by its epoch."""
        job = agent_dir / "attempts" / job_id
        made_before = job / str(epoch)
        return cls(made_before if made_before.is_dir() else job / f"{NUMBERED}{epoch - 1}")

    @property
    def epoch(self) -> int:
        """By the folder's name. Raises ValueError for any other folder."""
        name = self.folder.name
        return int(name.removeprefix(NUMBERED)) + 1 if name.startswith(NUMBERED) else int(name)

    @property
    def allocation(self) -> Path:
        return self.folder / "allocation.json"

    @property
    def spec(self) -> Path:
        """The job's spec (`JobSpec.canonical_json()`), written by the agent before the ranks start; the session reads it."""
        return self.folder / "spec.json"

    @property
    def request(self) -> Path:
        """The agent's request to the session: `{"id", "kind": "checkpoint", "reason", "deadline_ms", "then_stop"}`, replaced atomically."""
        return self.folder / "request.json"

    @property
    def profile(self) -> Path:
        """The agent's request for a profile: `{"id", "ranks", "steps", "deadline_steady_s"}`; there only while one is under way."""
        return self.folder / "profile.json"

    @property
    def store_socket(self) -> Path:
        """Socket on which the agent grants the ranks access to the object store; see `checkpointing/lease`."""
        return self.folder / "store.sock"

    @property
    def code(self) -> Path:
        """The working folder of the ranks."""
        return self.folder / "code"

    @property
    def keeper(self) -> Path:
        """`{"pid", "create_time", "warm"}` of the parent of all ranks here; every process of the attempt descends from it."""
        return self.folder / "keeper.json"

    @property
    def confinement(self) -> Path:
        """The namespaces' first process and what is confined how, written by the keeper; absent where nothing is."""
        return self.folder / "confinement.json"

    def rank(self, rank: int) -> RankPaths:
        return RankPaths(self.folder / f"rank-{rank}")


@dataclass(frozen=True)
class RankLaunch:
    """One rank to start. `env` is its whole environment; nothing is inherited from the agent but what stands here.

    `command[0]` `python` or `python3` means `interpreter`, or the launcher's own where that is None. `secrets` are added to the
    environment and replaced by `***` in the rank's output; so are values that are written to `secrets_dir` later. The keeper removes that
    folder when the attempt is over.
    """

    rank: int
    folder: Path
    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    interpreter: str | None = None
    secrets_dir: Path | None = None

    @property
    def paths(self) -> RankPaths:
        return RankPaths(self.folder)


@dataclass(frozen=True)
class StoreSocket:
    """A listening TCP socket (its descriptor stays the caller's) on which the attempt's rendezvous store is to answer.

    Given on the node of rank 0 only. `world_size` is that of the whole gang.
    """

    fd: int
    address: str
    port: int
    world_size: int


@dataclass(frozen=True)
class Started:
    """All ranks have a process. `warm`: forked from the warm process; otherwise `why_cold` says what forbade it."""

    warm: bool
    pids: Mapping[int, int]
    keeper_pid: int
    why_cold: str = ""


@dataclass(frozen=True)
class ExitRecord:
    """End of a rank's process: `exit_code`, or the `signal` that ended it. `note`: what its keeper knows beside that."""

    exit_code: int | None
    signal: int | None
    at_ms: int
    note: str = ""

    @property
    def clean(self) -> bool:
        return self.exit_code == 0


class LaunchError(Exception):
    """The ranks could not be started. `retryable` is False when another node would fail in the same way."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class RankLauncher(Protocol):
    """The port; `trainhouse.workers.launcher.Launcher` is the real one.

    Beside it, functions in `trainhouse.workers.launcher` (they need no Launcher, so a restarted agent uses them on adopted attempts):
    `read_exit(RankPaths) -> ExitRecord | None`, `rank_alive(RankPaths) -> bool`, `attempt_alive(AttemptPaths) -> bool`,
    `terminate(AttemptPaths) -> int` (SIGTERM to every rank's process group), `kill_tree(AttemptPaths) -> int` (SIGKILL to every
    process of the attempt, the keeper last). All return at once.
    """

    def prepare(self) -> None:
        """Begin to start the warm process; returns at once. Call it again to replace one that died."""

    def start(
        self, attempt: AttemptPaths, ranks: Sequence[RankLaunch], store: StoreSocket | None, confinement: Confinement | None = None
    ) -> Started:
        """Start all ranks of this node, confined as asked; blocks until each has a pid (warm: tens of ms).

        Raises LaunchError and then leaves nothing.
        """

    def close(self) -> None:
        """Let the warm process go. Ranks that run go on."""
