"""The environment and command of a rank: torchrun's contract, and ours. Pure.

Holds: no key of the object store is in it. What the launcher sets wins over what the spec sets, and that over what the node gives. Every
rank of a node sees all devices of its gang there, in the order of local ranks, so that `cuda:{LOCAL_RANK}` is its own, as torchrun's
scripts expect. A rank with a share of a device sees the whole device: nothing here bounds how much of it the rank uses.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from trainhouse.events import GangAllocated, JobSpec, NodePlacement
from trainhouse.events.model.secret_names import variable_of
from trainhouse.events.model.skipped_data import dump_skipped
from trainhouse.events.model.spec import Scalar
from trainhouse.workers.agent.debug.recorder_dumps import prefix_in
from trainhouse.workers.launcher import AttemptPaths, ports

PASSED_ON = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "CUDA_HOME"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}
    | {"TRAINHOUSE_DATA_CACHE_DIR", "TRAINHOUSE_DATA_CACHE_GIB", "TRAINHOUSE_DATA_READS"}
)
PASSED_ON_PREFIXES = ("LC_", "NCCL_", "GLOO_", "NVIDIA_", "CUDA_DEVICE_")
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class NodeSide:
    """Additions of the node: its own environment, where the store is (without its keys), and whether its devices are accelerators."""

    environ: Mapping[str, str]
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    accelerators: bool = False
    spool_limit_bytes: int | None = None
    gateway_url: str = ""


@dataclass(frozen=True)
class RankFolders:
    """Folders of the rank and its attempt. `secrets`: on tmpfs; empty for a job without any."""

    attempt: str
    rank: str
    secrets: str = ""


def node_environment(environ: Mapping[str, str], start_time: Mapping[str, str]) -> dict[str, str]:
    """Returns the part of the agent's own environment that a rank gets: where things are, never who the agent is."""
    passed = {k: v for k, v in environ.items() if k in PASSED_ON or k.startswith(PASSED_ON_PREFIXES)}
    return {**start_time, **passed}


def rank_environment(
    allocation: GangAllocated, placement: NodePlacement, rank: int, folders: RankFolders, node: NodeSide
) -> dict[str, str]:
    """The whole environment of one rank, without secrets."""
    role, _ = allocation.spec.role_of(rank)
    needs = allocation.spec.resources if role is None or role.resources is None else role.resources
    defaults = _recorder(folders) if node.accelerators else {"OMP_NUM_THREADS": str(max(1, int(needs.cpus_per_device or 1)))}
    return {
        **node.environ,
        **defaults,
        **_mlflow(allocation, node),
        **allocation.spec.env,
        **_torchrun(allocation, placement, rank, folders),
        **({"CUDA_VISIBLE_DEVICES": ",".join(placement.devices)} if node.accelerators else {}),
        **_trainhouse(allocation, folders, node),
    }


def _recorder(folders: RankFolders) -> dict[str, str]:
    """Collectives are recorded, and dumped into the rank's folder when one times out. The spec's own env wins."""
    return {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_ON_TIMEOUT": "1", "TORCH_FR_DUMP_TEMP_FILE": prefix_in(folders.rank)}


def _mlflow(allocation: GangAllocated, node: NodeSide) -> dict[str, str]:
    """A job that brings a token for it logs by MLflow's client onto itself: the job is the run. The spec's own env wins."""
    brought = {*allocation.spec.env, *map(variable_of, allocation.spec.secrets)}
    if not node.gateway_url or "MLFLOW_TRACKING_TOKEN" not in brought or "MLFLOW_TRACKING_URI" in brought:
        return {}
    return {"MLFLOW_TRACKING_URI": node.gateway_url, "MLFLOW_RUN_ID": str(allocation.job_id)}


def _torchrun(allocation: GangAllocated, placement: NodePlacement, rank: int, folders: RankFolders) -> dict[str, str]:
    world = str(allocation.world_size)
    role, first_rank = allocation.spec.role_of(rank)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank - placement.first_rank),
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": str(len(placement.devices)),
        "GROUP_RANK": str(allocation.placements.index(placement)),
        "GROUP_WORLD_SIZE": str(len(allocation.placements)),
        "ROLE_NAME": "default" if role is None else role.name,
        "ROLE_RANK": str(rank - first_rank),
        "ROLE_WORLD_SIZE": world if role is None else str(role.ranks),
        "MASTER_ADDR": allocation.master_address,
        "MASTER_PORT": str(allocation.master_port),
        "TORCHELASTIC_RUN_ID": str(allocation.job_id),
        "TORCHELASTIC_RESTART_COUNT": str(int(allocation.attempt)),
        "TORCHELASTIC_MAX_RESTARTS": str(allocation.spec.limits.restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_ERROR_FILE": f"{folders.rank}/error.json",
    }


def _trainhouse(allocation: GangAllocated, folders: RankFolders, node: NodeSide) -> dict[str, str]:
    spec = allocation.spec
    optional = {
        "TRAINHOUSE_RESUME_FROM": spec.resume_from,
        "TRAINHOUSE_DATA_URI": spec.data.uri if spec.data else None,
        "TRAINHOUSE_DATA_SHA256": spec.data.sha256 if spec.data else None,
        ports.DATASET: spec.data.dataset if spec.data else None,
        "TRAINHOUSE_DATA_SPLIT": spec.data.split if spec.data else None,
        ports.PARALLELISM: spec.parallelism.at(allocation.world_size).model_dump_json() if spec.parallelism is not None else None,
        ports.TRAINING: spec.training.model_dump_json() if spec.training is not None else None,
        ports.RESTORE_AT_MOST: str(allocation.restore_at_most) if allocation.restore_at_most is not None else None,
        ports.SKIP_DATA: dump_skipped(allocation.skip_data) if allocation.skip_data else None,
        ports.ACCEPTED_BAD: str(allocation.accepted_bad) if allocation.accepted_bad is not None else None,
        ports.SECRETS_DIR: folders.secrets or None,
        ports.SPOOL_LIMIT_BYTES: str(node.spool_limit_bytes) if node.spool_limit_bytes else None,
    }
    return {
        ports.JOB_ID: str(allocation.job_id),
        ports.ATTEMPT: str(int(allocation.attempt)),
        ports.EPOCH: str(int(allocation.epoch)),
        ports.SPEC_SHA256: allocation.spec_sha256,
        ports.ATTEMPT_DIR: folders.attempt,
        ports.RANK_DIR: folders.rank,
        ports.BACKEND: "nccl" if node.accelerators else "gloo",
        "TRAINHOUSE_SEED": str(spec.seed),
        "TRAINHOUSE_HYPERPARAMETERS": orjson.dumps(spec.hyperparameters).decode(),
        "TRAINHOUSE_CHECKPOINT": spec.checkpoint.model_dump_json(),
        **{k: v for k, v in optional.items() if v is not None},
        **({**node.store, ports.STORE_LEASE: str(AttemptPaths(Path(folders.attempt)).store_socket)} if node.store else {}),
    }


def command_of(spec: JobSpec, rank: int) -> tuple[str, ...]:
    """Returns a rank's command: its role's own, or the job's; hyperparameters filled in."""
    role, _ = spec.role_of(rank)
    own = role.command if role is not None else None
    return filled_command(own or spec.runtime.command, spec.hyperparameters)


def filled_command(command: Sequence[str], hyperparameters: Mapping[str, Scalar]) -> tuple[str, ...]:
    """The command with `{name}` of each known hyperparameter replaced; other braces stay as they are."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return _text(hyperparameters[name]) if name in hyperparameters else match.group(0)

    return tuple(_PLACEHOLDER.sub(value, argument) for argument in command)


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)
