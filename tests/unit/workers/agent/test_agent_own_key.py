"""An agent's key after `trainhouse node forget-key`: one that was refused is announced again, one that may be stolen is not."""

from __future__ import annotations

from typing import Any

import pytest

from trainhouse.events import NodeKeyed, encode, envelope_of
from trainhouse.events.security.grants import READ, TOPIC, WRITE, allowed
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import NODE_KEYS
from trainhouse.workers.agent.core import AgentState, Command, Identity, step
from trainhouse.workers.agent.core.actions import Register
from trainhouse.workers.agent.core.own_key import OwnKey
from trainhouse.workers.agent.follower import Follower, FollowerMessage

OWN, OTHER = "a" * 43, "b" * 43


def keyed(public_key: str, node_id: str = "n", pool: str = "p") -> NodeKeyed:
    return NodeKeyed.model_validate({"node_id": node_id, "pool": pool, "public_key": public_key, "at_ms": 1})


@pytest.mark.parametrize(
    ("told", "again"),
    [
        ((keyed(""),), True),
        ((keyed(OTHER), keyed("")), True),
        ((keyed(OWN), keyed("")), False),
        ((keyed(OWN), keyed(""), keyed(OTHER), keyed("")), False),
        ((keyed("", node_id="m"),), False),
        ((keyed("", pool="q"),), False),
        ((keyed(OTHER),), False),
        ((keyed(OWN),), False),
    ],
)
def test_a_key_that_was_refused_is_announced_when_the_other_one_is_forgotten(told: tuple[NodeKeyed, ...], again: bool) -> None:
    own = OwnKey("n", "p", OWN)
    assert [own.on_node_keyed(event) for event in told] == [*[False] * (len(told) - 1), again]


def test_an_agent_that_does_not_sign_has_nothing_to_announce() -> None:
    assert not OwnKey("n", "p", "").on_node_keyed(keyed(""))


def test_the_agent_registers_anew_when_its_reader_says_so() -> None:
    state = AgentState(Identity("n", "boot", "i1", "p"))
    _, actions = step(state, 1, Command(keyed("")))
    assert [type(a) for a in actions] == [Register]


class Message:
    """A record as the reader has it."""

    def __init__(self, event: NodeKeyed) -> None:
        self._value = encode(envelope_of(event, id="k", source="s", now_ms=1))

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[Any]:
        return []


def test_the_reader_passes_on_what_is_to_be_acted_on_alone() -> None:
    heard: list[FollowerMessage] = []
    follower = Follower(KafkaSettings(), "n", "p", heard.append, public_key=OWN)
    for event in (keyed(OTHER), keyed("", node_id="m"), keyed("")):
        follower._on_message(Message(event))  # type: ignore[arg-type]
    assert heard == [Command(keyed(""))]


def test_agents_read_which_keys_count_and_write_none() -> None:
    assert allowed("agent", TOPIC, NODE_KEYS, READ) and not allowed("agent", TOPIC, NODE_KEYS, WRITE)
