"""A whole stack that tests share and may kill parts of, stop, and start: each leaves it running, or says that it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.stack_state import ps
from trainhouse.deploy.local.supervision import supervisor_client

SLOTS = 2


class OwnStack:
    """A data folder, and the commands on it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.folder = StackFolder(data_dir)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRAINHOUSE_") or name == "TRAINHOUSE_CACHE_DIR"}
        self.environment = kept | {"TRAINHOUSE_AGENT_WARM_START": "false"}  # its jobs need no torch
        # A journal is trimmed up to a snapshot, which so comes soon.
        self.environment["TRAINHOUSE_SCHEDULER_SNAPSHOT_EVERY_RECORDS"] = "1"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "trainhouse.cli.main", *arguments, "--data-dir", str(self.data_dir)]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), env=self.environment, capture_output=True, text=True, timeout=600)

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def up(self, *arguments: str) -> str:
        return self.ok("up", "--detach", *arguments)

    def runs(self) -> bool:
        """Whether it is up now."""
        return supervisor_client.supervisor_pid(self.folder) is not None

    def parts(self) -> dict[str, dict[str, Any]]:
        """What `ps --json` prints, without a process for each look."""
        return {row.name: asdict(row) for row in ps(self.data_dir)}

    def printed_parts(self) -> dict[str, dict[str, Any]]:
        rows = [json.loads(line) for line in self.ok("ps", "--json").splitlines()]
        return {row["name"]: row for row in rows}

    def exports(self) -> dict[str, str]:
        """What `env` prints, without a shell for each look."""
        return client_config.exports(self.folder)

    def evaluated_exports(self) -> dict[str, str]:
        script = f'eval "$({subprocess.list2cmdline(self.command("env"))})"; env -0'
        done = subprocess.run(["bash", "-ec", script], env=self.environment, capture_output=True, text=True, check=True)
        pairs = (entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
        return {name: value for name, value in pairs if name.startswith("TRAINHOUSE_")}

    def supervisor(self) -> psutil.Process:
        return psutil.Process(int((self.data_dir / "supervisor.pid").read_text()))

    def pids(self) -> set[int]:
        supervisor = self.supervisor()
        return {supervisor.pid, *(child.pid for child in supervisor.children(recursive=True))}

    def put(self, key: str, body: bytes) -> None:
        self._s3().put_object(Bucket=self.exports()["TRAINHOUSE_S3_BUCKET"], Key=key, Body=body)

    def get(self, key: str) -> bytes:
        return bytes(self._s3().get_object(Bucket=self.exports()["TRAINHOUSE_S3_BUCKET"], Key=key)["Body"].read())

    def _s3(self) -> Any:
        import boto3

        exports = self.exports()
        return boto3.client(
            "s3",
            endpoint_url=exports["TRAINHOUSE_S3_ENDPOINT"],
            aws_access_key_id=exports["TRAINHOUSE_S3_ACCESS_KEY"],
            aws_secret_access_key=exports["TRAINHOUSE_S3_SECRET_KEY"],
            region_name=exports["TRAINHOUSE_S3_REGION"],
        )

    def sql(self, query: str) -> str:
        import urllib.parse
        import urllib.request

        found = self.exports()
        url = f"{found['TRAINHOUSE_CLICKHOUSE_URL']}/?query={urllib.parse.quote(query)}"
        account = {"X-ClickHouse-User": found["TRAINHOUSE_CLICKHOUSE_USER"], "X-ClickHouse-Key": found["TRAINHOUSE_CLICKHOUSE_PASSWORD"]}
        with urllib.request.urlopen(urllib.request.Request(url, headers=account), timeout=60) as reply:
            return str(reply.read().decode().strip())
