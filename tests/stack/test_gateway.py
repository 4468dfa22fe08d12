"""The gateway of a whole stack: a job from its submission to its end over HTTP alone, and what becomes of tokens and connections."""

from __future__ import annotations

import json
import shlex
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

JOBS = "/v1/training-jobs"
ENOUGH_S = 480
LINES = 20
PRINTS = f"import time\nfor n in range({LINES}): print('line', n, flush=True); time.sleep(0.1)"


@pytest.fixture(scope="module")
def told(stack: LiveStack) -> dict[str, str]:
    """What `trainhouse env` prints."""
    lines = [line.removeprefix("export ").split("=", 1) for line in stack.ok("env").splitlines()]
    return {name: shlex.split(value)[0] for name, value in lines}


@pytest.fixture(scope="module")
def client(told: dict[str, str]) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {told['TRAINHOUSE_GATEWAY_TOKEN']}"}
    with httpx.Client(base_url=told["TRAINHOUSE_GATEWAY_URL"], headers=headers, timeout=ENOUGH_S) as made:
        yield made


def spec(name: str, code: str, **more: Any) -> dict[str, Any]:
    return {"spec": {"name": name, "runtime": {"command": ["python", "-c", code]}, "limits": {"restarts": 0}} | more}


@contextmanager
def stream(client: httpx.Client, path: str, **headers: str) -> Iterator[Iterator[tuple[str, str, Any]]]:
    """Events of a stream: (id, name, data)."""
    with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.read()
        yield events(response)


def events(response: httpx.Response) -> Iterator[tuple[str, str, Any]]:
    fields: dict[str, str] = {}
    deadline = time.monotonic() + ENOUGH_S
    for line in response.iter_lines():
        assert time.monotonic() < deadline, "the stream told nothing that was waited for"
        if not line and "data" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
        if not line:
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def read(client: httpx.Client, path: str, after: str, **more: Any) -> dict[str, Any]:
    """What a write left, asked for until it can be read: each time the gateway waits for some seconds."""

    def look() -> dict[str, Any]:
        answer = client.get(path, params={"after": after}, **more)
        assert answer.status_code in (200, 503), answer.text
        return dict(answer.json()) if answer.status_code == 200 else {}

    return until(look, path)


def test_a_job_from_its_submission_to_its_end(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": f"job-{time.time_ns()}"}
    first, again = (client.post(JOBS, json=spec("gateway-life", PRINTS), headers=headers).json() for _ in range(2))
    assert first["job_id"] == again["job_id"] and first["event_id"] == again["event_id"]
    path = f"{JOBS}/{first['job_id']}"
    assert read(client, path, first["after"])["spec_sha256"] == first["spec_sha256"]
    lines: list[str] = []
    # Without an id a stream begins now; with this one, at the job's beginning.
    with stream(client, f"{path}/stream", **{"Last-Event-ID": "s-1.m-1.l-1.e0"}) as live:
        for got, name, data in live:
            place = got
            lines += [one["line"] for one in data["lines"]] if name == "log" else []
            if len(lines) >= 3:
                break
    states = []
    # The connection broke; the next one goes on behind what was got.
    with stream(client, f"{path}/stream", **{"Last-Event-ID": place}) as live:
        for _, name, data in live:
            lines += [one["line"] for one in data["lines"]] if name == "log" else []
            states += [data["state"]] if name == "status" else []
            if states[-1:] == ["SUCCEEDED"] and len(lines) == LINES:
                break
    assert lines == [f"line {n}" for n in range(LINES)]

    def items(of: str, name: str) -> list[str]:
        return [item[name] for item in client.get(f"{path}/{of}").json()["items"]]

    # The stream tells statuses as they come on Kafka; tables are behind it.
    until(lambda: "trainhouse.job.submitted.v1" in items("events", "type"), lambda: items("events", "type"))
    until(lambda: items("attempts", "state") == ["STOPPED"], lambda: items("attempts", "state"))


def test_a_job_ends_when_it_is_cancelled(client: httpx.Client) -> None:
    made = client.post(JOBS, json=spec("gateway-cancel", "import time; time.sleep(3600)")).json()
    path = f"{JOBS}/{made['job_id']}"
    read(client, path, made["after"])
    cancelled = client.post(f"{path}/cancel", params={"after": made["after"]}, json={"reason": "enough"})
    assert cancelled.status_code == 202
    read(client, path, cancelled.json()["after"])
    with stream(client, f"{path}/stream?include=status&after={cancelled.json()['after']}") as live:
        assert any(data["state"] == "CANCELLED" for _, _, data in live)


def test_what_intake_refuses_is_seen_by_who_sent_it(stack: LiveStack, told: dict[str, str], client: httpx.Client) -> None:
    token = stack.ok("token", "create", "gateway-ana", "--project", "gateway-vision").strip()
    own = {"Authorization": f"Bearer {token}"}
    refused = spec("gateway-refused", "pass", pool="no-such-pool", project="gateway-vision")
    made = client.post(JOBS, json=refused, headers=own).json()
    found = read(client, f"{JOBS}/{made['job_id']}", made["after"], headers=own)
    assert found["state"] == "REJECTED" and "no-such-pool" in found["reason"]
    other = {"Authorization": f"Bearer {stack.ok('token', 'create', 'gateway-bob', '--project', 'gateway-speech').strip()}"}
    assert client.get(f"{JOBS}/{made['job_id']}", headers=other).status_code == 404


def test_a_revoked_token_ends_its_stream_and_every_request(stack: LiveStack, client: httpx.Client) -> None:
    token = stack.ok("token", "create", "gateway-eve", "--project", "*", "--role", "viewer").strip()
    own = {"Authorization": f"Bearer {token}"}
    with stream(client, "/v1/stream", **own) as live:
        stack.ok("token", "revoke", token, "--reason", "left")
        name, data = next((name, data) for _, name, data in live if name == "cut")
    assert name == "cut" and "revoked" in data["reason"]
    assert client.get("/v1/whoami", headers=own).status_code == 401
    until(lambda: client.get("/v1/audit", params={"sub": "gateway-eve"}).json()["items"])


def test_a_connection_that_says_nothing_is_closed(told: dict[str, str]) -> None:
    address = httpx.URL(told["TRAINHOUSE_GATEWAY_URL"])
    with socket.create_connection((address.host, address.port or 0), timeout=480) as silent:
        silent.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        try:
            assert silent.recv(100) == b""
        except ConnectionResetError:
            pass


def test_figures_are_told(client: httpx.Client) -> None:
    assert client.post(JOBS, json=spec("gateway-counted", "pass")).status_code == 202
    assert 'trainhouse_gateway_requests_total{method="POST",route="/v1/training-jobs",status="202"}' in client.get("/metrics").text
