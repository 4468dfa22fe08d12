"""Who may look into a rank or run a command beside it: what an agent refuses, whoever wrote to the topic."""

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainhouse.client.kafka.replies import Answers, keys_of, nodes_of
from trainhouse.events import (
    AskedVia,
    DumpStacks,
    Envelope,
    ExecuteCommand,
    JobSpec,
    NodeAccess,
    NodeKeyed,
    NodePlacement,
    OpenTunnel,
    OperationReplied,
    ProfileRanks,
    RequestedBy,
    encode,
    envelope_of,
)
from trainhouse.events.security.key_files import kept_key, read_key
from trainhouse.events.security.signing import HEADER, InvalidKeyError, SigningKey, signature_of
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS
from trainhouse.workers.agent.accesses import NodeAudit
from trainhouse.workers.agent.core import AgentState
from trainhouse.workers.agent.debug.permission import MAX_AGE_MS, KnownKey, Permission, read_keys, tunnel_refusal
from trainhouse.workers.agent.errors import InvalidSettingError
from trainhouse.workers.agent.node.registration import new_identity
from trainhouse.workers.agent.rank_operations import REFUSED, Operations
from trainhouse.workers.agent.settings import AgentSettings

NOW_MS = 1_700_000_000_000
GATEWAY, OPERATOR, STRANGER = SigningKey.made(), SigningKey.made(), SigningKey.made()
KEYS = {GATEWAY.public_key: KnownKey("gateway", "g"), OPERATOR.public_key: KnownKey("operator", "o")}


ABOUT: dict[str, Any] = {"request_id": "r", "node_id": "n", "job_id": "j", "expires_at_ms": NOW_MS + 60_000}


def request(asked: RequestedBy | None = None) -> ExecuteCommand:
    return ExecuteCommand.model_validate(ABOUT | {"rank": 0, "command": ("id",), "requested_by": asked})


def profile(asked: RequestedBy | None = None) -> ProfileRanks:
    return ProfileRanks.model_validate(ABOUT | {"ranks": (0,), "requested_by": asked})


def tunnel(asked: RequestedBy | None = None) -> OpenTunnel:
    return OpenTunnel.model_validate(ABOUT | {"url": "https://g", "nonce": "n" * 16, "requested_by": asked})


def by_gateway(role: str, name: str = "alice") -> RequestedBy:
    return RequestedBy(name=name, via=AskedVia.GATEWAY, role=role)


def asked(
    key: SigningKey | None,
    who: RequestedBy | None = None,
    *,
    at_ms: int = NOW_MS,
    event_id: str = "e",
    topic: str = topics.OPERATIONS,
    event: DumpStacks | ExecuteCommand | OpenTunnel | ProfileRanks | None = None,
) -> tuple[Envelope, bytes, Any]:
    default = profile(who) if key is GATEWAY else request(who)
    envelope = envelope_of(event or default, id=event_id, source="s", now_ms=at_ms)
    value = encode(envelope)
    return envelope, value, None if key is None else signature_of([key.header(topic, value)])


def strict() -> Permission:
    return Permission(KEYS, required=True)


@pytest.mark.parametrize(
    ("key", "who"),
    [(OPERATOR, None), (GATEWAY, by_gateway("submitter")), (GATEWAY, by_gateway("operator")), (GATEWAY, by_gateway("admin"))],
)
def test_the_gateway_for_its_users_and_an_operator_are_obeyed(key: SigningKey, who: RequestedBy | None) -> None:
    assert strict().refusal(*asked(key, who), NOW_MS) == ""


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (asked(None), "not signed"),
        (asked(None, by_gateway("admin")), "not signed"),
        (asked(STRANGER, by_gateway("admin")), "not one of this node's"),
        (asked(GATEWAY, by_gateway("viewer")), "alice is a viewer"),
        (asked(GATEWAY, by_gateway("")), "without a role"),
        (asked(GATEWAY, None), "does not say for whom"),
        (asked(GATEWAY, RequestedBy(name="x", via=AskedVia.OPERATOR, role="admin")), "does not say for whom"),
        (asked(GATEWAY, event=request(by_gateway("admin"))), "the gateway g asks for profiles and tunnels alone"),
        (asked(GATEWAY, event=DumpStacks.model_validate(ABOUT | {"requested_by": by_gateway("admin")})), "profiles and tunnels alone"),
        (asked(OPERATOR, topic=topics.JOBS), "does not hold"),
        (asked(OPERATOR, at_ms=NOW_MS - MAX_AGE_MS - 1), "minutes ago"),
        (asked(OPERATOR, at_ms=NOW_MS + MAX_AGE_MS + 1), "minutes ago"),
    ],
)
def test_nothing_else_is(found: tuple[Envelope, bytes, Any], told: str) -> None:
    assert told in strict().refusal(*found, NOW_MS)


def test_a_gateway_asks_for_tunnels_for_those_who_may_submit() -> None:
    assert strict().refusal(*asked(GATEWAY, event=tunnel(by_gateway("submitter"))), NOW_MS) == ""
    assert "alice is a viewer" in strict().refusal(*asked(GATEWAY, event=tunnel(by_gateway("viewer"))), NOW_MS)
    assert "not signed" in strict().refusal(*asked(None, event=tunnel(by_gateway("admin"))), NOW_MS)


@pytest.mark.parametrize(
    ("who", "told"),
    [
        (by_gateway("submitter", "ada"), ""),
        (by_gateway("operator", "bob"), ""),
        (by_gateway("admin", "bob"), ""),
        (by_gateway("submitter", "bob"), "the job is ada's, and bob is neither"),
        (RequestedBy(name="ada", via=AskedVia.OPERATOR, role=""), "no gateway says for whom"),
        (None, "no gateway says for whom"),
    ],
)
def test_a_tunnel_leads_to_the_job_s_own_user_and_to_operators(who: RequestedBy | None, told: str) -> None:
    spec = JobSpec.model_validate({"user": "ada", "runtime": {"command": ("x",)}, "interactive": {}})
    found = tunnel_refusal(spec, who)
    assert told in found and bool(told) == bool(found)
    assert tunnel_refusal(spec.model_copy(update={"interactive": None}), who) == "the job is not interactive"


def test_a_request_that_was_changed_on_the_way_is_refused() -> None:
    envelope, value, signature = asked(OPERATOR)
    changed = value.replace(b'"id"]', b'"sh"]')
    assert changed != value
    assert "does not hold" in strict().refusal(envelope, changed, signature, NOW_MS)


def test_a_request_counts_once() -> None:
    permission, found = strict(), asked(OPERATOR)
    assert permission.refusal(*found, NOW_MS) == ""
    assert "asked before" in permission.refusal(*found, NOW_MS + 1)
    assert permission.refusal(*asked(OPERATOR, event_id="f"), NOW_MS + 1) == ""


def test_a_request_from_before_the_agents_start_does_not_count_again() -> None:
    restarted = Permission(KEYS, required=True, started_ms=NOW_MS + 1)
    assert "before this agent started: ask again" in restarted.refusal(*asked(OPERATOR), NOW_MS + 2)
    assert restarted.refusal(*asked(OPERATOR, at_ms=NOW_MS + 1), NOW_MS + 2) == ""


def test_where_no_signature_is_required_a_signed_one_is_checked_all_the_same() -> None:
    lax = Permission(KEYS, required=False)
    assert lax.refusal(*asked(None), NOW_MS) == ""
    assert "viewer" in lax.refusal(*asked(GATEWAY, by_gateway("viewer")), NOW_MS)


def test_a_refusal_is_an_answer_and_runs_nothing() -> None:
    told: list[OperationReplied] = []
    audited: list[NodeAccess] = []
    operations = Operations(None, told.append, NodeAudit("n", audited.append, lambda: NOW_MS))  # type: ignore[arg-type]
    operations.ask(request(), AgentState(new_identity("n", "b", "p")), NOW_MS, "a viewer")
    operations.close()
    (only,) = told
    assert only.done and only.exit_code == REFUSED and "refused by node n: a viewer" in only.text


def test_a_private_key_is_its_owners_alone_and_made_once(tmp_path: Path) -> None:
    path = tmp_path / "k"
    first = kept_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and list(tmp_path.iterdir()) == [path]
    assert kept_key(path).public_key == first.public_key == read_key(path).public_key
    path.write_text("no key")
    with pytest.raises(InvalidKeyError, match="operations-key"):
        read_key(path)


def test_the_file_of_known_keys_is_read_or_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# who may\ngateway g {GATEWAY.public_key}\noperator o {OPERATOR.public_key}  # me\n\n")
    assert read_keys(path) == KEYS and read_keys(None) == {}
    for line in ("operator o", f"root o {OPERATOR.public_key}", "operator o short"):
        path.write_text(f"\n{line}\n")
        with pytest.raises(InvalidSettingError, match=":2: "):
            read_keys(path)


@pytest.mark.parametrize("headers", [None, [], [(HEADER, b"ed25519 a")], [(HEADER, b"\xff")], [(HEADER, b"x y eg==")], [(HEADER, None)]])
def test_headers_that_are_no_signature_are_none(headers: Any) -> None:
    assert signature_of(headers) is None


def test_two_signatures_are_none_and_a_wrong_key_never_holds() -> None:
    _, value, signature = asked(OPERATOR)
    header = OPERATOR.header(topics.OPERATIONS, value)
    assert signature_of([header, header]) is None
    assert not replace(signature, public_key="AAAA").holds(topics.OPERATIONS, value)
    assert not replace(signature, public_key=GATEWAY.public_key).holds(topics.OPERATIONS, value)


def placed(*nodes: str) -> tuple[NodePlacement, ...]:
    fields = {"boot_id": "b", "address": "x", "devices": ("0",)}
    return tuple(NodePlacement.model_validate(fields | {"node_id": n, "first_rank": at}) for at, n in enumerate(nodes))


def keyed(node_id: str, key: SigningKey | None, pool: str = "default") -> tuple[bytes, Any]:
    event = NodeKeyed.model_validate({"node_id": node_id, "pool": pool, "public_key": key.public_key if key else "", "at_ms": 1})
    return encode(envelope_of(event, id="k", source="s", now_ms=1)), HEADERS


def answer(
    node_id: str, rank: int, key: SigningKey | None, topic: str = topics.OPERATION_REPLIES, request_id: str = "r"
) -> tuple[bytes, Any]:
    fields = {"request_id": request_id, "node_id": node_id, "job_id": "j", "attempt": 0, "rank": rank, "part": 0, "text": "t", "done": True}
    value = encode(envelope_of(OperationReplied.model_validate(fields), id="e", source="s", now_ms=1))
    return value, HEADERS if key is None else (*HEADERS, key.header(topic, value))


def test_only_the_node_of_a_rank_answers_for_it() -> None:
    """Who has an agent's password reads each request, and may write an answer to it."""
    a, b = SigningKey.made(), SigningKey.made()
    keys = keys_of([keyed("a", STRANGER), keyed("a", a), keyed("b", b), keyed("old", b), (b"{", ()), keyed("old", None)])
    answers = Answers("r", nodes_of(placed("a", "b", "old")), keys)

    def counts(said: tuple[bytes, Any]) -> bool:
        event = answers.read(*said)
        assert event is not None
        return answers.counts(event, *said)

    assert [counts(answer("a", 0, a)), counts(answer("b", 1, b)), counts(answer("old", 2, None))] == [True] * 3
    for forged in (
        answer("a", 0, b),
        answer("a", 0, None),
        answer("a", 0, STRANGER),
        answer("b", 0, b),
        answer("a", 1, a),
        answer("a", 0, a, topics.CONTROL),
    ):
        assert not counts(forged)
    for other in (answer("a", 0, a, request_id="q"), (b"r {", ()), (None, ())):
        assert answers.read(*other) is None


@pytest.mark.parametrize("key", [None, STRANGER])
@pytest.mark.parametrize(
    ("url", "is_known"),
    [
        ("https://g.example", True),
        ("https://G.example:443/", True),
        ("http://10.0.0.7:8443/base", True),
        ("http://g.example", False),
        ("https://g.example:444", False),
        ("https://g.example.evil.example", False),
        ("https://g.example/other", False),
        ("http://169.254.169.254/latest", False),
        ("http://127.0.0.1:22", False),
        ("https://g.example?x=y", False),
        ("https://g.example:99999", False),
        ("https://[::1", False),
    ],
)
def test_an_agent_without_required_signatures_calls_gateways_of_its_own_settings_alone(
    key: SigningKey | None, url: str, is_known: bool
) -> None:
    lax = Permission(KEYS, required=False, gateways=("https://g.example", "http://10.0.0.7:8443/base/"))
    event = tunnel(by_gateway("submitter")).model_copy(update={"url": url})
    refusal = lax.refusal(*asked(key, event=event), NOW_MS)
    assert refusal == "" if is_known else "is no gateway of this node's settings (https://g.example, " in refusal
    if not is_known:
        assert lax.refusal(*asked(GATEWAY, event=event), NOW_MS) == "", "who holds the gateway's key names any process of it"
    assert "is no gateway" in Permission(KEYS, required=False).refusal(*asked(key, event=event), NOW_MS), (
        "where none is known, none is called"
    )


def test_only_addresses_are_listed_as_gateways() -> None:
    fields = {"tunnel_gateways": "https://a:8443, http://b"}
    assert AgentSettings.model_validate(fields).tunnel_gateways == ("https://a:8443", "http://b")
    for wrong in ("a:8443", "https://", "ftp://a", "https://u@a", "https://a:x"):
        with pytest.raises(ValueError, match="is no address of a gateway"):
            AgentSettings.model_validate({"tunnel_gateways": wrong})
