"""Probes of the HTTP API: every operation of the OpenAPI document, with the victim's ids in it, by every identity.

Holds: the operations come from the running gateway, so that a new route is probed as soon as it is there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from tests.security.campaign.outcome import Outcome
from tests.security.campaign.target import VICTIM, Target

TIMEOUT_S = 20.0
MAX_BODY_BYTES = 1024 * 1024
# Operations that answer anybody, and say nothing about a project; to end a session that is none changes nothing.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json", "/metrics", "/v1/session"})
WRITES = frozenset({"post", "put", "delete", "patch"})


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    parameters: tuple[str, ...]
    queries: tuple[str, ...]


def operations(target: Target) -> list[Operation]:
    """What the gateway says it offers."""
    document = httpx.get(f"{target.gateway}/openapi.json", headers=_bearer(target.tokens["viewer"]), timeout=TIMEOUT_S).json()
    found = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            listed = operation.get("parameters", [])
            inside = tuple(p["name"] for p in listed if p["in"] == "path")
            asked = tuple(p["name"] for p in listed if p["in"] == "query")
            found.append(Operation(method, path, inside, asked))
    return found


def probe(target: Target, count: int, seed: int) -> Iterator[Outcome]:
    """`count` probes of the API; blocks while each is answered."""
    rng = random.Random(seed)
    offered = operations(target)
    identities = list(target.tokens)
    with httpx.Client(base_url=target.gateway, timeout=TIMEOUT_S, follow_redirects=False) as client:
        for number in range(count):
            operation = offered[number % len(offered)]
            yield _one(client, target, operation, rng.choice(identities), rng)


def _one(client: httpx.Client, target: Target, operation: Operation, identity: str, rng: random.Random) -> Outcome:
    path = operation.path
    for name in operation.parameters:
        path = path.replace("{" + name + "}", _disguised(_value(name, target, rng), rng)).replace("{" + name + ":path}", target.victim_job)
    query = {name: _value(name, target, rng) for name in operation.queries if rng.random() < 0.4}
    headers = _bearer(target.tokens[identity]) | _odd_headers(target, rng)
    if operation.method in WRITES:
        headers["Idempotency-Key"] = f"probe-{rng.randrange(1 << 40):x}"
    body = _body(target, rng) if operation.method in WRITES else None
    tried = f"{operation.method.upper()} {path} {query} as {identity}"
    try:
        with client.stream(operation.method.upper(), path, params=query, headers=headers, json=body) as answer:
            content = _beginning(answer)
    except httpx.TimeoutException:
        return Outcome("http", identity, tried, "timeout")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Outcome("http", identity, tried, type(error).__name__)
    return Outcome("http", identity, tried, str(answer.status_code), _leak(target, operation, identity, answer.status_code, content))


def _leak(target: Target, operation: Operation, identity: str, status: int, content: bytes) -> str:
    # What the probe itself sent may come back in an error's text; the canary is sent by no probe.
    if target.canary.encode() in content:
        return f"the victim's canary in {len(content)} bytes"
    unknown = identity not in ("viewer", "submitter")
    if unknown and 200 <= status < 300 and operation.path not in OPEN_PATHS:
        return f"an answer to an identity that is none: {content[:120]!r}"
    if operation.method in WRITES and 200 <= status < 300 and "{job_id}" in operation.path:
        return f"a write to the victim's job was accepted: {content[:120]!r}"
    return ""


def _beginning(answer: httpx.Response) -> bytes:
    """The first bytes of an answer; of an endless stream what comes at once."""
    content = b""
    if "event-stream" in answer.headers.get("content-type", ""):
        return next(answer.iter_raw(), b"")
    for part in answer.iter_raw():
        content += part
        if len(content) > MAX_BODY_BYTES:
            break
    return content


def _value(name: str, target: Target, rng: random.Random) -> str:
    if name in ("job_id", "job", "jobs", "run_id", "run_uuid", "run", "runs", "ids"):
        return target.victim_job
    if name in ("project", "projects", "filter"):
        return VICTIM
    return rng.choice([target.victim_job, VICTIM, "*", "0", "1", "%", "../" + target.victim_job, "'; SELECT 1 --", "\x00", "a" * 300])


def _disguised(value: str, rng: random.Random) -> str:
    return rng.choice(
        [
            quote(value, safe=""),
            quote(value, safe=""),
            quote("../" + value, safe=""),
            quote(quote(value, safe=""), safe=""),
            quote(value, safe="") + "%00",
            quote(value.upper(), safe=""),
            quote(value + " ", safe=""),
            "%2e%2e%2f" + quote(value, safe=""),
            quote(value, safe="") + ";x=1",
        ]
    )


def _odd_headers(target: Target, rng: random.Random) -> dict[str, str]:
    return rng.choice(
        [
            {},
            {},
            {"X-Forwarded-User": "admin", "X-Remote-User": "admin"},
            {"X-Trainhouse-Guest": "1"},
            {"Origin": "http://evil.example"},
            {"Host": "evil.example"},
            {"X-HTTP-Method-Override": "DELETE"},
            {"X-Original-URL": f"/v1/training-jobs/{target.victim_job}"},
            {"Cookie": "trainhouse=; session=admin"},
        ]
    )


def _body(target: Target, rng: random.Random) -> Any:
    return rng.choice(
        [
            {},
            {"job_id": target.victim_job, "run_id": target.victim_job, "key": "loss", "value": 1.0, "timestamp": 1, "step": 1},
            {"run_ids": [target.victim_job], "experiment_ids": ["0", VICTIM], "filter": f"attributes.project = '{VICTIM}'"},
            {"name": "probe", "project": VICTIM, "runtime": {"command": ["true"]}},
            {"query": f"SELECT * FROM jobs WHERE job_id = '{target.victim_job}'"},
            {"reason": "probe"},
            {"priority": 0},
        ]
    )


def _bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}
