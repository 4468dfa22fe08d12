"""Steps of a credential rotation, their order, and the parts that each restarts. Pure.

Holds: a verifier changes before the signer: the store accepts a key before any part has it, a public key is listed
before anything is signed with its private one. Every step may be repeated from its begin, so a rotation that was cut off is finished by the
whole plan again, for its own servers and those that are asked for now.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from trainhouse.deploy.local.supervision import stack_parts
from trainhouse.events.security.grants import PRINCIPALS

KAFKA, STORE, SQL, GATEWAY, SIGNING = "kafka", "store", "sql", "gateway", "signing"
SERVERS = (KAFKA, STORE, SQL, GATEWAY, SIGNING)
# What leaves something valid until it is retired.
RETIRED = (STORE, GATEWAY, SIGNING)


class Step(StrEnum):
    """One step."""

    SIGNING_KEYS = "signing keys are listed, then in their files"
    TOKEN_KEY = "the gateway's key of before is taken on, then the new one is in its file"  # nosec B105  # words, no password
    STORE_TAKES = "the store takes the new key"
    STORE_USED = "the parts' files have the new key"
    SQL_PASSWORDS = "the accounts of SQL have new passwords in the parts' files"  # nosec B105
    KAFKA_PASSWORDS = "the accounts on the brokers have new passwords, in the parts' files and there"  # nosec B105
    BROKER_PASSWORD = "the broker's own file has its new password"  # nosec B105
    RESTART = "the parts are started again"


STEPS = {
    SIGNING: (Step.SIGNING_KEYS,),
    GATEWAY: (Step.TOKEN_KEY,),
    STORE: (Step.STORE_TAKES, Step.STORE_USED),
    SQL: (Step.SQL_PASSWORDS,),
    KAFKA: (Step.KAFKA_PASSWORDS, Step.BROKER_PASSWORD),
}
# The gateway reads its tokens' keys again by itself, an agent its list of operations keys.
READERS = {
    SIGNING: {"intake", "scheduler", "detector"},
    GATEWAY: set[str](),
    STORE: {"projector", "intake", "scheduler", "tuner", "gateway", stack_parts.AGENT},
    SQL: {"projector", "alerts", "gateway"},
    KAFKA: {"kafka", *PRINCIPALS},
}


def plan(servers: Iterable[str], runs: bool) -> tuple[Step, ...]:
    """The steps for these servers. `runs`: whether the stack does; else its next `up` reads what is new."""
    wanted = set(servers)
    steps = tuple(step for server, own in STEPS.items() if server in wanted for step in own)
    return (*steps, Step.RESTART) if runs and started_again(wanted) else steps


def started_again(servers: Iterable[str]) -> tuple[str, ...]:
    """The parts that hold what was changed, in the order in which they are started again.

    The agent comes right after the brokers: when the detector listens again, it is there to be heard.
    """
    names = set[str]().union(*(READERS[server] for server in servers))
    first = ("kafka", stack_parts.AGENT)
    return tuple(name for name in (*first, *(name for name in stack_parts.NAMES if name not in first)) if name in names)
