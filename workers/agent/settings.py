"""The agent's settings: `[agent]` of the settings file, `TRAINHOUSE_AGENT_*` in the environment.

Holds: explicit argument > environment > file > default. No default reads the host except `node_id`, in `resolved`.
"""

import json
import re
import socket
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from trainhouse.events.model.ids import NodeId
from trainhouse.events.settings import TomlSection
from trainhouse.events.tunnel.tunnel_call import address_of

MIB = 1024 * 1024
NODE_KEY = "node.key"  # in `dir`


class GatewayAddress(TomlSection):
    """Address of the gateway for ranks that log by MLflow's client, and its authority for tunnels. Empty: MLflow is not configured."""

    section = "gateway"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_GATEWAY_", extra="ignore")

    url: str = Field("", description="address of the gateway")
    ca: Path | None = Field(None, description="file of an authority that is trusted beside the system's (PEM)")


class AgentSettings(TomlSection):
    """One node's agent."""

    section = "agent"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_AGENT_", extra="ignore")

    node_id: NodeId | None = Field(None, description="id of the node; default: made of the host's name")
    pool: str = Field("default", description="pool that the node joins")
    dir: Path = Field(Path(".trainhouse/agent"), description="folder of attempts, cached code and the agent's state, one for each agent")
    secrets_dir: Path | None = Field(
        None, description="folder of the sealed files of `trainhouse secrets`; default: `secrets` beside `dir`"
    )
    secrets_key_file: Path | None = Field(
        None, description="file of the key that they are sealed with; default: `secrets.key` beside `dir`"
    )
    secrets_runtime_dir: Path | None = Field(None, description="folder on tmpfs for secrets of running jobs; default: /run, else /dev/shm")
    secrets_refresh_s: float = Field(30.0, ge=0.1, le=86_400, description="seconds after which secrets of running jobs are read again")
    slots: int = Field(2, ge=0, le=1024, description="cpu slots, where there are no accelerators")
    accelerators: str = Field(
        "auto",
        pattern="^(auto|none|nvml)$",
        description="auto: NVML's devices if there are any, else cpu slots; nvml: those or no start; none: cpu slots",
    )
    address: str = Field("127.0.0.1", description="address at which ranks on other nodes reach this one's")
    labels: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        description="labels of the node, NAME=VALUE with commas between: nvlink, rack, switch, pod and zone name its "
        "topology domains, spot=true one that may be taken away",
    )
    interpreter: str | None = Field(None, description="Python that `python` means for a job that names none; default: the agent's own")
    warm_start: bool = Field(
        True, description="true: a process that has imported torch waits to be forked into ranks; false: ranks import it, seconds each"
    )
    image_digest: str | None = Field(
        None, description="digest of the image in which this agent runs; a job that names another one is not launched"
    )
    isolation: str = Field(
        "preferred",
        pattern="^(required|preferred|none)$",
        description="confinement of jobs: all of it or no launch (required), what the machine offers (preferred), or none",
    )
    job_paths: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="paths that confined jobs see beside system, Python and their own folder: PATH, or PATH:rw to write, "
        "with commas between",
    )
    heartbeat_interval_s: float = Field(1.0, gt=0, le=60, description="seconds between heartbeats")
    poll_interval_s: float = Field(0.03, gt=0, le=5, description="seconds from one look at the files of running ranks to the next")
    shutdown_grace_s: float = Field(10.0, ge=0, description="seconds from SIGTERM in which ranks save and leave")
    notice_file: Path | None = Field(
        None, description="file that announces the end of this node when somebody writes it; default: `notice` in `dir`"
    )
    notice_deadline_s: float = Field(30.0, gt=0, le=86_400, description="seconds until then, where the notice has no number")
    notice_url: str | None = Field(
        None, pattern="^https?://", description="address of a cloud's announcements: AWS's instance-action, GCP's preempted, Azure's events"
    )
    notice_interval_s: float = Field(5.0, ge=0.1, le=3600, description="seconds from one request of it to the next")
    notice_resource: str | None = Field(None, description="name of this machine in Azure's lists; default: every event counts")
    log_limit_bytes: int = Field(
        64 * MIB, ge=64 * 1024, description="most bytes of one output stream of one rank; the rest is dropped, and a line says so"
    )
    spool_limit_bytes: int = Field(
        256 * MIB,
        ge=MIB,
        description="most bytes of points and reports of one rank that wait to be shipped; the session refuses to write more",
    )
    keep_attempts: int = Field(50, ge=0, description="folders of finished attempts that stay")
    keep_attempts_bytes: int = Field(2048 * MIB, ge=0, description="most bytes of those folders")
    peer_memory_gib: float = Field(
        0.0,
        ge=0,
        le=65536,
        description="GiB of main memory in which this node holds the newest checkpoints of other nodes' jobs; jobs here get so much less",
    )
    peer_memory_port: int = Field(0, ge=0, le=65535, description="port at which other nodes reach them; 0: any that is free")
    operations_keys: Path | None = Field(
        None, description="file of public keys whose requests for stacks, profiles, tunnels and commands count, one a line"
    )
    require_signed: bool = Field(
        False, description="true: requests that none of those keys signed are refused; false: only signed ones are checked"
    )
    tunnel_gateways: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="addresses of gateways that this agent calls for tunnels, beside the `url` of [gateway], where no known key signed the "
        "request, with commas between; a request that a listed gateway's key signed may name any address",
    )
    sign_reports: bool = Field(
        True, description="whether reports are signed, with the key `node.key` in `dir` that the agent makes at its first start"
    )
    keep_code_bytes: int = Field(4096 * MIB, ge=0, description="most bytes of unpacked code that stays cached")

    @field_validator("tunnel_gateways", mode="before")
    @classmethod
    def _gateways_as_text(cls, value: Any) -> Any:
        """In the environment: `https://a:8443,https://b:8443`."""
        urls = tuple(u.strip() for u in value.split(",") if u.strip()) if isinstance(value, str) else tuple(value)
        wrong = next((u for u in urls if address_of(u) is None), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is no address of a gateway; write http:// or https://, a host, and its port")
        return urls

    @field_validator("job_paths", mode="before")
    @classmethod
    def _paths_as_text(cls, value: Any) -> Any:
        """In the environment: `/data,/scratch:rw`."""
        paths = tuple(p.strip() for p in value.split(",") if p.strip()) if isinstance(value, str) else tuple(value)
        wrong = next((p for p in paths if not re.fullmatch(r"/[^:]+(:rw)?", p)), None)
        if wrong is not None:
            raise ValueError(
                f"{wrong!r} is no path to show to jobs; write an absolute one below /, with :rw behind it for one they may write"
            )
        return paths

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_as_text(cls, value: Any) -> Any:
        """In the environment: `rack=r7,pod=p1`, or a JSON object."""
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("{"):
            return json.loads(value)
        pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
        wrong = next((name for name, sign, text in pairs if not (name.strip() and sign and text.strip())), None)
        if wrong is not None:
            raise ValueError(f"{wrong.strip()!r} is no label; write name=value, with commas between: rack=r7,pod=p1")
        return {name.strip(): text.strip() for name, _, text in pairs}

    def resolved(self) -> "AgentSettings":
        """With node_id and absolute folders filled in. Reads the host's name."""
        folder = self.dir.absolute()
        update = {
            "node_id": self.node_id or NodeId.parse(re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._")[:100] or "node"),
            "dir": folder,
            "notice_file": (self.notice_file or folder / "notice").absolute(),
            "secrets_key_file": (self.secrets_key_file or folder.parent / "secrets.key").absolute(),
            "secrets_dir": (self.secrets_dir or folder.parent / "secrets").absolute(),
        }
        return self.model_copy(update=update)
