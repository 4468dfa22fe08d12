"""What a campaign attacks: a stack with a foreign project in it, and the identities that an attacker may have.

Holds: everything that belongs to the victim carries the canary, so that an answer that holds it is a leak.
"""

from __future__ import annotations

import base64
import json
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.stack.live_stack import LiveStack

VICTIM, OWN = "vault", "mine"
FINISH_TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Target:
    """A running stack, the victim's job, and tokens by the name of an identity; "" sends none."""

    stack: LiveStack
    gateway: str
    sql: str
    canary: str
    victim_job: str
    own_job: str
    tokens: Mapping[str, str]


def prepare(stack: LiveStack) -> Target:
    """Runs a job of the victim and one of the attacker's own; blocks until both have ended and are in the tables."""
    canary = f"canary{secrets.token_hex(8)}"
    script = f"print('{canary} in a log line', flush=True)"
    victim = _job(stack, VICTIM, "victim", canary, script)
    own = _job(stack, OWN, "own", "mallory", "print(1)")
    made = {
        "viewer": _token(stack, "viewer", OWN),
        "submitter": _token(stack, "submitter", OWN),
    }
    variables = exports(stack)
    return Target(
        stack=stack,
        gateway=variables["TRAINHOUSE_GATEWAY_URL"],
        sql=variables["TRAINHOUSE_CLICKHOUSE_URL"],
        canary=canary,
        victim_job=victim,
        own_job=own,
        tokens={"nobody": "", "junk": "junk", **made, **_tampered(made["viewer"])},
    )


def exports(stack: LiveStack) -> dict[str, str]:
    """The stack's addresses as a person gets them."""
    lines = (line.removeprefix("export ") for line in stack.ok("env").splitlines() if line.startswith("export "))
    return {name: value.strip("'\"") for name, _, value in (line.partition("=") for line in lines)}


def _token(stack: LiveStack, role: str, project: str) -> str:
    return stack.ok("token", "create", f"mallory-{role}", "--role", role, "--project", project).split()[-1]


def _job(stack: LiveStack, project: str, name: str, user: str, script: str) -> str:
    options = ["--project", project, "--user", user, "--name", name, "--wait", "--json"]
    with tempfile.TemporaryDirectory() as empty:  # its files would go along
        return _job_id(stack.ok("submit", *options, "--", "python", "-c", script, cwd=Path(empty), timeout_s=FINISH_TIMEOUT_S))


def _job_id(out: str) -> str:
    for line in out.splitlines():
        if line.startswith("{") and (found := json.loads(line).get("job_id")):
            return str(found)
    raise AssertionError(f"submit printed no job id:\n{out[:2000]}")


def _tampered(token: str) -> dict[str, str]:
    """The same token with other claims, and with no signature at all."""
    header, claims, signature = token.split(".")
    content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    greater = _encoded(content | {"roles": ["admin"], "projects": ["*"]})
    unsigned = _encoded({"alg": "none", "typ": "JWT"})
    return {
        "forged-claims": f"{header}.{greater}.{signature}",
        "alg-none": f"{unsigned}.{greater}.",
    }


def _encoded(content: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
