"""An S3 server on one machine: SeaweedFS, all its roles in one process, from a Python package.

Always: every listening port is given and on loopback (the ones it would open by itself are switched off), its memory
has a bound, only our key may use it by S3 and nobody by its other ports, and nothing is reported to anybody.
Never: a port that nobody asked for.
"""

from __future__ import annotations

import json
import secrets
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self

from trainhouse.deploy.local.errors import NotReadyError
from trainhouse.deploy.local.free_ports import LOOPBACK, free_ports
from trainhouse.deploy.local.servers import seaweedfs_security
from trainhouse.deploy.local.servers.server_process import Server
from trainhouse.deploy.local.socket_folder import remove_runtime_dir, runtime_dir
from trainhouse.private_files import write_private

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MEMORY_LIMIT_MB = 1024
IN_FLIGHT_MB = 256
VOLUME_SIZE_MB = 1024
MIN_FREE_SPACE = "256MiB"
PROBE_TIMEOUT_S = 1.0
# Writers that contend for one key under If-None-Match wait for each other's lock, for seconds.
CLIENT_TIMEOUT_S = 30.0
BUCKET = "trainhouse"
REGION = "us-east-1"


@dataclass(frozen=True)
class StorePorts:
    """Every port that the server binds: HTTP and gRPC of each of its roles."""

    s3: int
    s3_grpc: int
    master: int
    master_grpc: int
    volume: int
    volume_grpc: int
    filer: int
    filer_grpc: int

    @classmethod
    def free(cls, s3: int | None = None) -> Self:
        """All ports free ones, but `s3` if given."""
        found = free_ports(len(fields(cls)))
        return cls(s3 or found[0], *found[1:])

    @classmethod
    def from_base(cls, base: int) -> Self:
        """Consecutive ports from `base`."""
        return cls(*range(base, base + len(fields(cls))))


@dataclass(frozen=True)
class StoreKeys:
    """The one identity that the server knows."""

    access_key: str
    secret_key: str

    @classmethod
    def new(cls) -> Self:
        """Fresh random keys."""
        return cls(access_key=f"TH{secrets.token_hex(9).upper()}", secret_key=secrets.token_urlsafe(30))


class StoreServer(Server):
    """One object store in one folder, with one bucket."""

    name = "store"
    # At SIGTERM its filer waits 15 s for subscribers inside its own process. What it answered is with the kernel by
    # then, and it has to survive `kill -9` anyway: so it gets a second, then SIGKILL.
    stop_timeout_s = 1.0

    def __init__(
        self,
        folder: Path,
        ports: StorePorts | None = None,
        keys: StoreKeys | None = None,
        bucket: str = BUCKET,
        old_keys: tuple[StoreKeys, ...] = (),
    ) -> None:
        """`old_keys`: taken beside `keys`, for who has not learned of those yet."""
        super().__init__(folder)
        self.old_keys = old_keys
        self.ports = ports or StorePorts.free()
        self.keys = keys or StoreKeys.new()
        self.bucket = bucket

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.s3}"

    @property
    def access_key(self) -> str:
        return self.keys.access_key

    @property
    def secret_key(self) -> str:
        return self.keys.secret_key

    @property
    def config_file(self) -> Path:
        return self.folder / "s3.json"

    @property
    def doors_folder(self) -> Path:
        return self.folder / "doors"

    def prepare(self) -> None:
        """Make the folders, the file with the key, and what closes the other ports; readable by their owner alone."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        self.write_keys()
        seaweedfs_security.refuse_taken(self._sockets())
        seaweedfs_security.write_doors(self.doors_folder)

    def write_keys(self) -> None:
        """Write the file with the keys; a server that runs reads it again at SIGHUP."""
        identity = {
            "name": "trainhouse",
            "credentials": [{"accessKey": each.access_key, "secretKey": each.secret_key} for each in (self.keys, *self.old_keys)],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        write_private(self.config_file, json.dumps({"identities": [identity]}).encode())

    def command(self) -> list[str]:
        """The server's command line."""
        weed = Path(sysconfig.get_path("scripts")) / "weed"
        # These two come before the command: they belong to the whole program.
        general = ["-logtostderr=true", f"-config_dir={self.doors_folder}"]
        return [str(weed), *general, "server", *(f"-{key}={value}" for key, value in self.options().items())]

    def environment(self) -> Mapping[str, str]:
        """A soft bound on the heap: the collector works harder before memory grows past it."""
        return {"GOMEMLIMIT": f"{MEMORY_LIMIT_MB}MiB", "GOGC": "50"}

    def options(self) -> dict[str, str | int]:
        """The server's options, by name."""
        sockets = runtime_dir(self.folder)
        return {
            "dir": str(self.folder / "data"),
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "s3": "true",
            "filer": "true",
            "master.port": self.ports.master,
            "master.port.grpc": self.ports.master_grpc,
            "master.telemetry": "false",
            # One master elects itself: with the default of 10 s, a restart after a crash waits that long.
            "master.electionTimeout": "1s",
            # What the master knows it learns from the volumes again, so that other ports serve the same data.
            "master.resumeState": "false",
            "master.volumeSizeLimitMB": VOLUME_SIZE_MB,
            "volume.port": self.ports.volume,
            "volume.port.grpc": self.ports.volume_grpc,
            "volume.max": 0,  # as many as the disk holds
            "volume.minFreeSpace": MIN_FREE_SPACE,
            "volume.preStopSeconds": 0,
            "volume.concurrentUploadLimitMB": IN_FLIGHT_MB,
            "volume.concurrentDownloadLimitMB": IN_FLIGHT_MB,
            "filer.port": self.ports.filer,
            "filer.port.grpc": self.ports.filer_grpc,
            "filer.localSocket": str(sockets / "filer.sock"),
            "filer.concurrentUploadLimitMB": IN_FLIGHT_MB,
            "s3.port": self.ports.s3,
            "s3.port.grpc": self.ports.s3_grpc,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.iam": "false",
            "s3.config": str(self.config_file),
            "s3.localSocket": str(sockets / "s3.sock"),
            "s3.concurrentUploadLimitMB": IN_FLIGHT_MB,
            "s3.readerCacheSizeMB": 64,
            **seaweedfs_security.OPTIONS,
        }

    def stop(self) -> None:
        """As any server's; its sockets go too."""
        super().stop()
        remove_runtime_dir(self.folder)
        for socket in self._sockets():
            socket.unlink(missing_ok=True)

    def _sockets(self) -> Iterator[Path]:
        ports = self.ports
        return seaweedfs_security.local_sockets(
            {"master": ports.master_grpc, "volume": ports.volume_grpc, "filer": ports.filer_grpc, "s3": ports.s3_grpc}
        )

    def client(self, timeout_s: float = CLIENT_TIMEOUT_S) -> S3Client:
        """A boto3 client of this store, without retries."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            config=Config(
                connect_timeout=timeout_s,
                read_timeout=timeout_s,
                retries={"total_max_attempts": 1},
                s3={"addressing_style": "path"},
            ),
        )

    def listens(self) -> list[int]:
        return list(astuple(self.ports))

    def answers(self) -> bool:
        """Whether the bucket is there (made if not) and takes an object."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            client = self.client(PROBE_TIMEOUT_S)
            self.ensure_bucket(client)
            client.put_object(Bucket=self.bucket, Key=".trainhouse/ready", Body=b"ready")
        except (BotoCoreError, ClientError):
            return False
        return True

    def ensure_bucket(self, client: S3Client) -> None:
        """Make the bucket if it is not there; raises botocore's errors when the store is away."""
        from botocore.exceptions import ClientError

        try:
            client.head_bucket(Bucket=self.bucket)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status == 403:
                raise NotReadyError(f"the store at {self.endpoint} refuses our key: another server has that port") from error
            client.create_bucket(Bucket=self.bucket)
