"""What happens on a node is in the audit: commands and stacks, obeyed or refused, by whom, and how they ended; without secrets."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.tables.migrated import connect_migrated
from trainhouse.events import (
    AskedVia,
    DumpStacks,
    Envelope,
    ExecuteCommand,
    GangAllocated,
    JobSpec,
    NodeAccess,
    NodeKeyed,
    NodePlacement,
    OperationReplied,
    ProfileRanks,
    RequestedBy,
    encode,
    envelope_of,
)
from trainhouse.events.archive.reading import RECORDED
from trainhouse.events.model.node_audit import Outcome
from trainhouse.events.model.secret_names import SecretName
from trainhouse.events.runtime.counts import MINUTE_MS
from trainhouse.events.security.grants import TOPIC, WRITE, allowed
from trainhouse.events.security.masked_commands import masked_command
from trainhouse.events.security.signing import SigningKey, signature_of
from trainhouse.events.wire.topics import AUDIT, CONTROL, NODE_AUDIT, NODE_KEYS, OPERATIONS
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.ingest.lanes import FACTS
from trainhouse.projections.record import Record
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.tables import TABLES
from trainhouse.workers.agent.accesses import REFUSALS_PER_MINUTE, WITHHELD, Asker, NodeAudit
from trainhouse.workers.agent.core import AgentState, AttemptKey, LocalAttempt
from trainhouse.workers.agent.core.agent_state import Running
from trainhouse.workers.agent.debug.permission import KnownKey, Permission
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.launching import paths_of
from trainhouse.workers.agent.launch.secretfiles import SecretFiles, runtime_folder
from trainhouse.workers.agent.node.registration import new_identity
from trainhouse.workers.agent.rank_operations import REFUSED, Operations
from trainhouse.workers.agent.ship.outbox import SIGNED
from trainhouse.workers.launcher.processes import write_process
from trainhouse.workers.secretstore.records import SecretRecord
from trainhouse.workers.secretstore.store import SecretStore

NOW_MS = 1_700_000_000_000
VALUE = "plain words of vision"
GATEWAY, OPERATOR, STRANGER = SigningKey.made(), SigningKey.made(), SigningKey.made()
KEYS = {GATEWAY.public_key: KnownKey("gateway", "g"), OPERATOR.public_key: KnownKey("operator", "root-1")}
ANA = Asker("ana", "the gateway g signed it for a submitter", "login-1")


@dataclass
class Node:
    """A node's agent as far as operations go, with one running attempt of two ranks."""

    operations: Operations
    state: AgentState
    secrets: SecretFiles
    allocation: GangAllocated
    replies: list[OperationReplied] = field(default_factory=list)
    accesses: list[NodeAccess] = field(default_factory=list)
    done: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def ask(self, request: DumpStacks | ExecuteCommand | ProfileRanks, refusal: str = "", asker: Asker = ANA) -> list[NodeAccess]:
        """What the audit is told, until every rank has its answer."""
        before = len(self.accesses)
        self.operations.ask(request, self.state, NOW_MS, refusal, asker)
        for _ in range(2 if isinstance(request, DumpStacks) and not refusal else 1):
            assert self.done.acquire(timeout=30)
        return self.accesses[before:]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    try:
        runtime_folder(None)
    except NotLaunchableError as error:
        pytest.skip(str(error))
    spec = JobSpec.model_validate({"project": "vision", "secrets": ["HUB_TOKEN"], "runtime": {"command": ["python"]}})
    place = NodePlacement(node_id="n", boot_id="b", address="127.0.0.1", first_rank=0, devices=("d", "e"))
    ids = {"job_id": "j", "attempt": 1, "epoch": 3, "pool": "p", "spec": spec, "spec_sha256": spec.sha256()}
    allocation = GangAllocated.model_validate({**ids, "placements": (place,), "master_address": "127.0.0.1", "master_port": 1})
    store = SecretStore(tmp_path / "secrets", tmp_path / "secrets.key")
    store.put(SecretRecord(SecretName("vision", "HUB_TOKEN"), VALUE.encode()))
    files = SecretFiles(store, tmp_path / "agent")
    files.hand_out(allocation)
    starter = SimpleNamespace(
        agent_dir=tmp_path / "agent", secrets=files, interpreter=sys.executable, confiner=None, environment_of=lambda *_: {"PATH": "/bin"}
    )
    paths_of(tmp_path / "agent", AttemptKey("j", 3)).code.mkdir(parents=True)
    state = AgentState(new_identity("n", "b", "p"), {AttemptKey("j", 3): LocalAttempt(allocation, place, Running())})
    made: Any = Node(None, state, files, allocation)  # type: ignore[arg-type]
    tell = lambda access: (made.accesses.append(access), access.outcome is Outcome.GRANTED or made.done.release())  # noqa: E731
    made.operations = Operations(starter, made.replies.append, NodeAudit("n", tell, lambda: NOW_MS))  # type: ignore[arg-type]
    yield made
    made.operations.close()
    files.sweep(())
    files.root().rmdir()


def execute(*command: str, rank: int = 0, expires_ms: int = NOW_MS + 60_000) -> ExecuteCommand:
    fields = {"request_id": "r", "node_id": "n", "job_id": "j", "expires_at_ms": expires_ms, "rank": rank, "command": command}
    return ExecuteCommand.model_validate(fields | {"timeout_s": 20, "host": "login-1"})


def test_a_command_is_told_before_it_runs_and_when_it_ended_with_its_code(node: Node) -> None:
    began, ended = node.ask(execute("sh", "-c", "echo hello; exit 7"))
    assert began.outcome is Outcome.GRANTED and ended.outcome is Outcome.ENDED and ended.access_id == began.access_id
    assert (began.sub, began.reason, began.address) == ("ana", ANA.why, "login-1")
    assert (began.job_id, began.node_id, began.attempt, began.ranks, began.project) == ("j", "n", 1, (0,), "vision")
    assert "echo hello" in began.text and began.target == "j/n/0"
    assert (ended.exit_code, ended.size_bytes, ended.ranks) == (7, len("hello\n"), (0,))


def test_secrets_of_the_job_and_what_looks_like_one_are_masked_in_the_command(node: Node) -> None:
    key = "Zq81mXk20PwLr7Bd93TyHs"
    (began, _) = node.ask(execute("echo", VALUE, VALUE.encode().hex(), f"--token={key}", "--password", "hunter22", "plain"))
    assert VALUE not in began.text and VALUE.encode().hex() not in began.text
    assert key not in began.text and "hunter22" not in began.text and "plain" in began.text and "***" in began.text


def test_a_command_is_not_shown_where_the_jobs_secrets_cannot_be_read(node: Node) -> None:
    (node.secrets.folder_of("j", 3) / "HUB_TOKEN").unlink()
    began, *_ = node.ask(execute("echo", VALUE))
    assert began.text == WITHHELD


def test_a_refusal_is_told_with_its_reason_and_no_command_runs(node: Node) -> None:
    (refused,) = node.ask(execute("echo", "x"), "alice is a viewer", Asker("alice", "alice is a viewer"))
    assert refused.outcome is Outcome.REFUSED and (refused.sub, refused.reason) == ("alice", "alice is a viewer")
    assert [r.exit_code for r in node.replies] == [REFUSED] and "echo x" in refused.text


@pytest.mark.parametrize(
    ("request_", "why"), [(execute("id", rank=5), "no such rank"), (execute("id", expires_ms=NOW_MS), "after its end")]
)
def test_what_is_void_or_of_no_rank_here_is_told_as_refused(node: Node, request_: ExecuteCommand, why: str) -> None:
    (refused,) = node.ask(request_)
    assert refused.outcome is Outcome.REFUSED and why in refused.reason and refused.sub == "ana"


def test_stacks_are_told_once_and_their_end_for_each_rank(node: Node) -> None:
    fields = {"request_id": "r", "node_id": "n", "job_id": "j", "expires_at_ms": NOW_MS + 60_000}
    began, *ends = node.ask(DumpStacks.model_validate(fields))
    assert began.action == "DumpStacks" and began.ranks == (0, 1) and sorted(e.ranks[0] for e in ends) == [0, 1]


def test_a_profile_of_ranks_of_which_one_is_here_is_granted_for_that_one(node: Node) -> None:
    fields = {"request_id": "r", "node_id": "n", "job_id": "j", "expires_at_ms": NOW_MS + 60_000, "ranks": (0, 9), "steps": 5}
    began, ended = node.ask(ProfileRanks.model_validate(fields))
    assert (began.outcome, began.ranks) == (Outcome.GRANTED, (0,)) and (ended.outcome, ended.ranks) == (Outcome.ENDED, (0,))
    assert sorted(r.rank for r in node.replies if r.done) == [0, 9]
    (refused,) = node.ask(ProfileRanks.model_validate(fields | {"ranks": (9,)}))
    assert refused.outcome is Outcome.REFUSED and refused.ranks == (9,)


def test_stacks_of_a_job_with_secrets_are_masked_or_not_shown(node: Node) -> None:
    sleeps = "print('ready', flush=True); time.sleep(90)"
    code = f"import os, time; exec(compile({sleeps!r}, os.environ['HUB_TOKEN'] + '.py', 'exec'))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "HUB_TOKEN": VALUE})
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        rank = paths_of(node.secrets.agent_dir, AttemptKey("j", 3)).rank(0)
        rank.folder.mkdir(parents=True)
        write_process(rank.pid, process.pid)
        asked = DumpStacks.model_validate({"request_id": "r", "node_id": "n", "job_id": "j", "expires_at_ms": NOW_MS + 60_000})

        def shown() -> str:
            node.replies.clear()
            node.ask(asked)
            return "".join(r.text for r in node.replies if r.rank == 0)

        assert "(***.py:1)" in (text := shown()) and VALUE not in text
        (node.secrets.folder_of("j", 3) / "HUB_TOKEN").unlink()
        assert "the secrets of the job cannot be read" in (text := shown()) and VALUE not in text
    finally:
        process.kill()
        process.communicate()


def test_a_flood_of_refusals_is_told_as_counts_that_add_up() -> None:
    told: list[NodeAccess] = []
    now = [NOW_MS]
    audit = NodeAudit("n", told.append, lambda: now[0])
    for _ in range(REFUSALS_PER_MINUTE + 500):
        audit.refused("exec", "ExecuteCommand", Asker(why="no"))
    assert len(told) == REFUSALS_PER_MINUTE
    now[0] += MINUTE_MS
    audit.turn(now[0])
    assert len(told) == REFUSALS_PER_MINUTE + 1 and sum(t.count for t in told) == REFUSALS_PER_MINUTE + 500


def test_a_clock_that_is_set_back_keeps_no_refusal_from_being_told() -> None:
    told: list[NodeAccess] = []
    now = [NOW_MS]
    audit = NodeAudit("n", told.append, lambda: now[0])
    for _ in range(REFUSALS_PER_MINUTE + 1):
        audit.refused("exec", "ExecuteCommand", Asker(why="no"))
    now[0] -= 60 * MINUTE_MS
    audit.turn(now[0])
    audit.refused("exec", "ExecuteCommand", Asker(why="no"))
    assert [access.count for access in told[REFUSALS_PER_MINUTE:]] == [1, 1]


@pytest.mark.parametrize(
    ("key", "asked", "who", "why"),
    [
        (OPERATOR, RequestedBy(name="bob", via=AskedVia.OPERATOR), "root-1", "operations key root-1; it says that bob asks"),
        (GATEWAY, RequestedBy(name="ana", via=AskedVia.GATEWAY, role="submitter"), "ana", "g signed it for a submitter"),
        (GATEWAY, RequestedBy(name="eve", via=AskedVia.GATEWAY, role="viewer"), "eve", "eve is a viewer"),
        (
            STRANGER,
            RequestedBy(name="ana", via=AskedVia.GATEWAY, role="admin"),
            "",
            "operations keys; it says that ana asks",
        ),
        (None, RequestedBy(name="ana", via=AskedVia.GATEWAY, role="admin"), "", "not signed"),
    ],
)
def test_a_name_is_told_only_as_far_as_its_signature_vouches(key: SigningKey | None, asked: RequestedBy, who: str, why: str) -> None:
    fields = {"request_id": "r", "node_id": "n", "job_id": "j", "expires_at_ms": NOW_MS + 60_000, "ranks": (0,)}
    event = ProfileRanks.model_validate(fields) if key is GATEWAY else execute("id")
    envelope = envelope_of(event.model_copy(update={"requested_by": asked}), id="e", source="s", now_ms=NOW_MS)
    value = encode(envelope)
    signature = None if key is None else signature_of([key.header(OPERATIONS, value)])
    judged = Permission(KEYS, required=True).judged(envelope, value, signature, NOW_MS)
    assert judged.requester == who and why in judged.why


def test_words_that_are_no_secrets_are_shown() -> None:
    for words in (("ls", "-l", "/tmp"), ("python", "-c", "print(1)"), ("nvidia-smi", "--query-gpu=name"), ("env", "NCCL_DEBUG=INFO")):
        assert "***" not in masked_command(words)
    word = "hunter22"
    for words in (("curl", "-H", "Authorization: Bearer abcdefghijklmnop1234"), ("sh", "-c", f"export DB_PASSWORD='{word}'; run")):
        assert "***" in masked_command(words) and "hunter22" not in masked_command(words) and "mnop1234" not in masked_command(words)


def test_agents_write_this_topic_signed_and_never_the_gateways_audit() -> None:
    assert allowed("agent", TOPIC, NODE_AUDIT, WRITE) and not allowed("agent", TOPIC, AUDIT, WRITE)
    assert NODE_AUDIT in SIGNED and {AUDIT, NODE_AUDIT} <= set(RECORDED)


def record(topic: str, envelope: Envelope, offset: int, key: SigningKey | None = None, signed_for: str = "") -> Record:
    value = encode(envelope)
    return Record(topic, 0, offset, NOW_MS, b"n", value, () if key is None else (key.header(signed_for or topic, value),))


def test_the_view_says_whether_the_node_itself_told_it(tmp_path: Path) -> None:
    own, other = SigningKey.made(), SigningKey.made()
    signed = [(own, "", NOW_MS), (other, "", NOW_MS), (None, "", NOW_MS), (own, CONTROL, NOW_MS)]
    found = shown(tmp_path, [(1, own)], signed)
    assert [row[1] for row in found] == ["node", "another key", "unsigned", "unsigned"]
    assert found[0][2:] == ("ana", 3, [1], "j", "id")


def test_the_view_judges_by_the_key_of_that_time_once_it_was_forgotten(tmp_path: Path) -> None:
    own, other = SigningKey.made(), SigningKey.made()
    signed = [(own, "", NOW_MS - 2), (own, "", NOW_MS + 2), (other, "", NOW_MS + 2), (other, "", NOW_MS - 2), (own, "", 0)]
    found = shown(tmp_path, [(1, own), (NOW_MS, None), (NOW_MS + 1, other)], signed)
    assert [row[1] for row in found] == ["node", "another key", "node", "node", "another key"]


def shown(folder: Path, keys: list[tuple[int, SigningKey | None]], signed: list[tuple[SigningKey | None, str, int]]) -> list[Any]:
    """What the view says of accesses that a node told: `keys` by time; `signed` by what key, for what topic, at what time."""
    records = []
    for offset, (at_ms, known) in enumerate(keys):
        keyed = NodeKeyed.model_validate({"node_id": "n", "pool": "p", "public_key": known.public_key if known else "", "at_ms": at_ms})
        records.append(record(NODE_KEYS, envelope_of(keyed, id=f"k{offset}", source="s", now_ms=1), offset))
    for offset, (key, topic, at_ms) in enumerate(signed):
        fields = {"at_ms": at_ms, "since_ms": at_ms, "outcome": "ended", "access": "exec", "action": "ExecuteCommand", "node_id": "n"}
        access = NodeAccess.model_validate(fields | {"job_id": "j", "ranks": [1], "exit_code": 3, "sub": "ana", "text": "id"})
        records.append(record(NODE_AUDIT, envelope_of(access, id=f"e{offset}", source="s", now_ms=1), offset, key, topic))
    clickhouse = connect_migrated(folder / "clickhouse", 1024**3, 2)
    try:
        for name, table in FactsBuilder(FACTS, read_schemas(clickhouse, TABLES)).build(records, {}).tables.items():
            clickhouse.insert(name, table, name)
        return clickhouse.rows("SELECT event_id, vouched, user, exit_code, ranks, job_id, text FROM audit ORDER BY event_id")
    finally:
        clickhouse.close()
