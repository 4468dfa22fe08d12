"""`trainhouse up`, `ps`, `env`, `down` as a user runs them, on the real stack."""

from __future__ import annotations

import json
import os
import signal
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.own_stack import OwnStack
from tests.support.waiting import until
from trainhouse.client.gateway import transport
from trainhouse.deploy.local.free_ports import LOOPBACK, listening
from trainhouse.deploy.local.layout import COUNT
from trainhouse.deploy.local.supervision import stack_parts

pytestmark = pytest.mark.stack

READY_S = 480.0


def answers(condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, False while what it asks is away."""

    def ask() -> bool:
        try:
            return condition()
        except Exception:
            return False

    return ask


@pytest.fixture
def stack(own_stack: OwnStack) -> OwnStack:
    """As other tests left it: with their jobs, and a part that they killed. The tests of this file follow each other."""
    return own_stack


def test_everything_runs_and_says_where(stack: OwnStack) -> None:
    rows = stack.printed_parts()
    timed = {name: rows.pop(name) for name in stack_parts.PASSES}
    assert all(row["state"] in ("STOPPED", "RUNNING", "EXITED") and row["log"] for row in timed.values())
    assert list(rows) == list(stack_parts.NAMES) and rows == stack.parts()
    assert all(row["state"] == "RUNNING" and row["pid"] for row in rows.values())
    exports = stack.evaluated_exports()
    assert exports.items() >= stack.exports().items()
    assert rows["kafka"]["addresses"] == [exports["TRAINHOUSE_KAFKA_BOOTSTRAP"]]
    assert rows["store"]["addresses"] == [exports["TRAINHOUSE_S3_ENDPOINT"]]
    assert rows["projector"]["addresses"][0] == exports["TRAINHOUSE_CLICKHOUSE_URL"]
    assert rows["gateway"]["addresses"] == [exports["TRAINHOUSE_GATEWAY_URL"]] and exports["TRAINHOUSE_GATEWAY_TOKEN"]


def test_the_exports_reach_the_store_and_the_queries(stack: OwnStack) -> None:
    stack.put("test/exports", b"reached")
    assert stack.get("test/exports") == b"reached"
    assert stack.sql("SELECT 1") == "1"


def test_the_node_is_registered_when_up_returns(stack: OwnStack) -> None:
    until(answers(lambda: stack.sql("SELECT count() FROM nodes") == "1"), "one node in SQL")


def test_a_job_that_fails_is_an_alert_now_and_on_the_past(stack: OwnStack, tmp_path: Path) -> None:
    spec = tmp_path / "fails.yaml"
    spec.write_text(f"name: fails\nlimits: {{restarts: 0}}\nruntime: {{command: [{sys.executable}, -c, exit(3)]}}\n")
    assert stack.run("submit", str(spec), "--wait").returncode == 1

    fired = answers(lambda: stack.sql("SELECT count() > 0 FROM alerts WHERE rule = 'job-failures'") == "1")
    until(fired, "the alert", READY_S, 0.5)
    (alert,) = [row for row in map(json.loads, stack.ok("alerts", "--json").splitlines()) if row["rule"] == "job-failures"]
    assert (alert["key"], alert["severity"], alert["state"], alert["labels"]) == ("pool=default", "WARNING", "OPEN", {"pool": "default"})
    assert alert["value"] == 100 / int(stack.sql("SELECT count() FROM jobs WHERE state IN ('SUCCEEDED', 'FAILED')")) and alert["limit"] == 5
    assert "FAILED" in alert["summary"] and alert["runbook"]
    assert "job-failures" in stack.ok("alerts")
    past = [json.loads(line) for line in stack.ok("alerts", "backtest", "job-failures", "--since", "1h", "--json").splitlines()]
    # Live, it may have been looked at just before its row was there.
    assert [row["key"] for row in past] == ["pool=default"] and abs(past[0]["fired_at_ms"] - alert["fired_at_ms"]) <= 60_000


def test_nothing_listens_beyond_loopback(stack: OwnStack) -> None:
    sockets = listening(stack.pids())
    assert {address for address, _ in sockets} <= {LOOPBACK, "::1", "::ffff:127.0.0.1"}
    assert len(sockets) >= COUNT - 1


def test_keys_and_sockets_are_their_owners_alone(stack: OwnStack) -> None:
    kept = (stack.data_dir / "store" / "s3.json", stack.data_dir / "gateway" / "key", stack.data_dir / "gateway" / "token")
    for path in (stack.data_dir, stack.folder.client_config, stack.folder.socket, *kept):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_keys_are_in_no_process_list(stack: OwnStack) -> None:
    secret = stack.exports()["TRAINHOUSE_S3_SECRET_KEY"]
    assert not [pid for pid in stack.pids() if secret in " ".join(psutil.Process(pid).cmdline())]


def test_a_second_up_on_the_folder_is_refused(stack: OwnStack) -> None:
    refused = stack.run("up", "--detach")
    assert refused.returncode != 0
    assert f"pid {stack.supervisor().pid}" in refused.stderr
    assert "trainhouse down" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_busy_port_is_refused_by_name(stack: OwnStack, tmp_path: Path) -> None:
    port = int(stack.exports()["TRAINHOUSE_KAFKA_BOOTSTRAP"].rpartition(":")[2])
    refused = OwnStack(tmp_path / "other").run("up", "--detach", "--ports", str(port))
    assert refused.returncode != 0
    assert f"port {port}" in refused.stderr and f"pid {stack.parts()['kafka']['pid']}" in refused.stderr
    assert "--ports auto" in refused.stderr


@pytest.mark.parametrize("name", stack_parts.NAMES)
def test_a_killed_part_is_started_again(stack: OwnStack, name: str) -> None:
    before = stack.parts()[name]
    os.kill(before["pid"], signal.SIGKILL)

    def is_back() -> bool:
        now = stack.parts()[name]
        return bool(now["state"] == "RUNNING" and now["pid"] != before["pid"] and now["restarts"] == before["restarts"] + 1)

    until(is_back, f"{name} runs again", timeout_s=READY_S)
    until(answers(lambda: stack.sql("SELECT 1") == "1"), "queries are answered", timeout_s=READY_S)


def test_a_killed_supervisor_takes_its_parts_along_and_up_goes_on(stack: OwnStack) -> None:
    stack.put("test/kept", b"kept")
    children = stack.supervisor().children()
    names = {child.pid: child.cmdline()[-3:] for child in children}
    stack.supervisor().kill()
    _, alive = psutil.wait_procs(children, timeout=READY_S)
    assert not alive, [names[child.pid] for child in alive]
    assert stack.run("ps").returncode != 0
    stack.up("--tls")
    is_as_it_was(stack)


def is_as_it_was(stack: OwnStack) -> None:
    """Everything runs, and what was there is there."""
    assert all(row["state"] == "RUNNING" and row["restarts"] == 0 for row in stack.parts().values())
    assert stack.get("test/kept") == b"kept"
    until(answers(lambda: stack.sql("SELECT count() FROM nodes") == "1"), "the node of before, in SQL")


def test_a_stack_with_tls_is_reached_by_https_alone(stack: OwnStack) -> None:
    """The stack of the test before, which was started again with `--tls`; each later `up` keeps that."""
    exports = stack.exports()
    url, token = exports["TRAINHOUSE_GATEWAY_URL"], exports["TRAINHOUSE_GATEWAY_TOKEN"]
    assert url.startswith("https://") and stack.parts()["gateway"]["addresses"] == [url]
    with httpx.Client(
        **transport.settings(url, token) | {"verify": ssl.create_default_context(cafile=exports["TRAINHOUSE_GATEWAY_CA"])}
    ) as client:
        answer = client.get("/v1/training-jobs")
        assert answer.status_code == 200 and "fails" in [job["name"] for job in answer.json()["items"]]
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
    assert done.returncode == 0 and "fails" in [json.loads(line)["name"] for line in done.stdout.splitlines()], done.stderr


def test_down_stops_all_and_keeps_the_data(stack: OwnStack) -> None:
    running = [stack.supervisor(), *stack.supervisor().children()]
    stack.ok("down")
    _, alive = psutil.wait_procs(running, timeout=480)  # none is a child of ours, and who has them may be slow to notice
    assert not alive
    assert stack.run("ps").returncode != 0
    assert stack.run("down").returncode != 0


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_in_the_foreground_the_stack_ends_with_its_command(stack: OwnStack, signum: signal.Signals) -> None:
    if stack.runs():
        stack.ok("down")
    # Whoever runs the tests in the background may have SIGINT ignored, which children inherit.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    command = stack.command("up")
    with subprocess.Popen(command, env=stack.environment, stdout=subprocess.PIPE, text=True, preexec_fn=heeds) as foreground:
        assert foreground.stdout is not None
        assert any("Ctrl-C" in line for line in foreground.stdout), "it came up"
        is_as_it_was(stack)
        running = [stack.supervisor(), *stack.supervisor().children()]
        foreground.send_signal(signum)
        _, alive = psutil.wait_procs(running, timeout=480)
    assert not alive
