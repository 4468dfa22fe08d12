"""`trainhouse up`, `ps`, `env`, `down` as a user runs them, on the real stack."""

from __future__ import annotations

import json
import os
import signal
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.waiting import until
from trainhouse.client.gateway import transport
from trainhouse.deploy.local import client_config, parts
from trainhouse.deploy.local.layout import COUNT, StackFolder
from trainhouse.deploy.local.ports import LOOPBACK, listening
from trainhouse.deploy.local.stack import ps

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

READY_S = 300.0


class Stack:
    """A data folder, and the commands on it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.folder = StackFolder(data_dir)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINHOUSE_")}
        self.environment["TRAINHOUSE_AGENT_WARM_START"] = "false"  # its one job needs no torch

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
        with urllib.request.urlopen(urllib.request.Request(url, headers=account), timeout=10) as reply:
            return str(reply.read().decode().strip())


def answers(condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, False while what it asks is away."""

    def ask() -> bool:
        try:
            return condition()
        except Exception:
            return False

    return ask


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    it = Stack(tmp_path_factory.mktemp("stack") / "data")
    try:
        it.up("--ports", "auto", "--slots", "2")
        yield it
    finally:
        it.run("down")


def test_everything_runs_and_says_where(stack: Stack) -> None:
    rows = stack.printed_parts()
    assert list(rows) == list(parts.NAMES) and rows == stack.parts()
    assert all(row["state"] == "RUNNING" and row["pid"] and row["restarts"] == 0 for row in rows.values())
    exports = stack.evaluated_exports()
    assert exports.items() >= stack.exports().items()
    assert rows["kafka"]["addresses"] == [exports["TRAINHOUSE_KAFKA_BOOTSTRAP"]]
    assert rows["store"]["addresses"] == [exports["TRAINHOUSE_S3_ENDPOINT"]]
    assert rows["projector"]["addresses"][0] == exports["TRAINHOUSE_CLICKHOUSE_URL"]
    assert rows["gateway"]["addresses"] == [exports["TRAINHOUSE_GATEWAY_URL"]] and exports["TRAINHOUSE_GATEWAY_TOKEN"]


def test_the_exports_reach_the_store_and_the_queries(stack: Stack) -> None:
    stack.put("test/exports", b"reached")
    assert stack.get("test/exports") == b"reached"
    assert stack.sql("SELECT 1") == "1"


def test_the_node_is_registered_when_up_returns(stack: Stack) -> None:
    until(answers(lambda: stack.sql("SELECT count() FROM nodes") == "1"), "one node in SQL")


def test_a_job_that_fails_is_an_alert_now_and_on_the_past(stack: Stack, tmp_path: Path) -> None:
    spec = tmp_path / "fails.yaml"
    spec.write_text(f"name: fails\nlimits: {{restarts: 0}}\nruntime: {{command: [{sys.executable}, -c, exit(3)]}}\n")
    assert stack.run("submit", str(spec), "--wait").returncode == 1

    def fired() -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in stack.ok("alerts", "--json").splitlines()]
        return [row for row in rows if row["rule"] == "job-failures"]

    alert = until(fired, "the alert", READY_S, 1.0)[0]
    assert (alert["key"], alert["severity"], alert["state"], alert["labels"]) == ("pool=default", "WARNING", "OPEN", {"pool": "default"})
    assert alert["value"] == 100 and alert["limit"] == 5 and "FAILED" in alert["summary"] and alert["runbook"]
    assert "job-failures" in stack.ok("alerts")
    past = [json.loads(line) for line in stack.ok("alerts", "backtest", "job-failures", "--since", "1h", "--json").splitlines()]
    # Live, it may have been looked at just before its row was there.
    assert [row["key"] for row in past] == ["pool=default"] and abs(past[0]["fired_at_ms"] - alert["fired_at_ms"]) <= 60_000


def test_nothing_listens_beyond_loopback(stack: Stack) -> None:
    sockets = listening(stack.pids())
    assert {address for address, _ in sockets} <= {LOOPBACK, "::1", "::ffff:127.0.0.1"}
    assert len(sockets) >= COUNT - 1


def test_keys_and_sockets_are_their_owners_alone(stack: Stack) -> None:
    kept = (stack.data_dir / "store" / "s3.json", stack.data_dir / "gateway" / "key", stack.data_dir / "gateway" / "token")
    for path in (stack.data_dir, stack.folder.client_config, stack.folder.socket, *kept):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_keys_are_in_no_process_list(stack: Stack) -> None:
    secret = stack.exports()["TRAINHOUSE_S3_SECRET_KEY"]
    assert not [pid for pid in stack.pids() if secret in " ".join(psutil.Process(pid).cmdline())]


def test_a_second_up_on_the_folder_is_refused(stack: Stack) -> None:
    refused = stack.run("up", "--detach")
    assert refused.returncode != 0
    assert f"pid {stack.supervisor().pid}" in refused.stderr
    assert "trainhouse down" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_busy_port_is_refused_by_name(stack: Stack, tmp_path: Path) -> None:
    port = int(stack.exports()["TRAINHOUSE_KAFKA_BOOTSTRAP"].rpartition(":")[2])
    refused = Stack(tmp_path / "other").run("up", "--detach", "--ports", str(port))
    assert refused.returncode != 0
    assert f"port {port}" in refused.stderr and f"pid {stack.parts()['kafka']['pid']}" in refused.stderr
    assert "--ports auto" in refused.stderr


@pytest.mark.parametrize("name", parts.NAMES)
def test_a_killed_part_is_started_again(stack: Stack, name: str) -> None:
    before = stack.parts()[name]
    os.kill(before["pid"], signal.SIGKILL)

    def is_back() -> bool:
        now = stack.parts()[name]
        return bool(now["state"] == "RUNNING" and now["pid"] != before["pid"] and now["restarts"] == before["restarts"] + 1)

    until(is_back, f"{name} runs again", timeout_s=READY_S)
    until(answers(lambda: stack.sql("SELECT 1") == "1"), "queries are answered", timeout_s=READY_S)


def test_down_and_up_keep_the_data(stack: Stack) -> None:
    stack.put("test/kept", b"kept")
    stack.ok("down")
    assert stack.run("ps").returncode != 0
    assert stack.run("down").returncode != 0
    stack.up("--tls")
    assert stack.get("test/kept") == b"kept"
    until(answers(lambda: stack.sql("SELECT count() FROM nodes") == "1"), "the node of before, in SQL")
    assert all(row["restarts"] == 0 for row in stack.parts().values())


def test_a_stack_with_tls_is_reached_by_https_alone(stack: Stack) -> None:
    """The stack of the test before, which was started again with `--tls`; each later `up` keeps that."""
    exports = stack.exports()
    url, token = exports["TRAINHOUSE_GATEWAY_URL"], exports["TRAINHOUSE_GATEWAY_TOKEN"]
    assert url.startswith("https://") and stack.parts()["gateway"]["addresses"] == [url]
    with httpx.Client(
        **transport.settings(url, token) | {"verify": ssl.create_default_context(cafile=exports["TRAINHOUSE_GATEWAY_CA"])}
    ) as client:
        answer = client.get("/v1/training-jobs")
        assert answer.status_code == 200 and [job["name"] for job in answer.json()["items"]] == ["fails"]
        assert "max-age" in answer.headers["strict-transport-security"]
    for asked in (lambda: httpx.get(f"{url}/healthz"), lambda: httpx.get(f"{url.replace('https:', 'http:')}/healthz")):
        with pytest.raises(httpx.TransportError):
            asked()
    environment = {name: value for name, value in exports.items() if name.startswith("TRAINHOUSE_GATEWAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "trainhouse.cli.main", "status", "--json"],
        env=stack.environment | environment,
        cwd=stack.data_dir.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["fails"], done.stderr


def test_a_killed_supervisor_takes_its_parts_along_and_up_goes_on(stack: Stack) -> None:
    children = stack.supervisor().children()
    names = {child.pid: child.cmdline()[-3:] for child in children}
    stack.supervisor().kill()
    _, alive = psutil.wait_procs(children, timeout=READY_S)
    assert not alive, [names[child.pid] for child in alive]
    stack.up()
    assert all(row["state"] == "RUNNING" for row in stack.parts().values())


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_in_the_foreground_the_stack_ends_with_its_command(stack: Stack, signum: signal.Signals) -> None:
    stack.run("down")
    # Whoever runs the tests in the background may have SIGINT ignored, which children inherit.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    command = stack.command("up")
    with subprocess.Popen(command, env=stack.environment, stdout=subprocess.PIPE, text=True, preexec_fn=heeds) as foreground:
        assert foreground.stdout is not None
        assert any("Ctrl-C" in line for line in foreground.stdout), "it came up"
        running = [stack.supervisor(), *stack.supervisor().children()]
        foreground.send_signal(signum)
        _, alive = psutil.wait_procs(running, timeout=90)
    assert not alive
