"""Gangs that make way, grow, shrink and are drained, for real: a pool of two nodes of two slots, on the shared stack.

The trained program is the example GPT, paced so that it lasts until a test has seen enough; what is said of it is what its user reads:
the status topic, SQL, and the command line. Nobody waits for a length of time, everybody for a condition.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.stack.paced_jobs import PACED_GPT, UNTIL_ENOUGH, Job, Pool
from tests.support.waiting import until
from trainhouse.events import JobState

pytestmark = pytest.mark.stack
POLICY = """\
name: making-way
run_times: limits
preemption: {enabled: true, min_run_s: 1, checkpoint_deadline_s: 600, restart_cost_s: 1}
elastic: {enabled: true, grow_after_s: 2}
"""


@pytest.fixture(scope="module")
def pool(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """The pool, with two agents of two slots each."""
    name, folder = f"way-{secrets.token_hex(3)}", tmp_path_factory.mktemp("way")
    stack.ok("pool", "create", name)
    with agents(stack, name, folder, f"{name}-a", f"{name}-b") as made:
        yield Pool(name, made.node_ids, stack, stack.client(), folder, [])


@pytest.fixture(autouse=True)
def alone(pool: Pool) -> Iterator[None]:
    """Nothing of a test that failed stands in the way of the next."""
    yield
    left = [job for job in pool.jobs if (status := job.seen()) is None or not status.state.final]
    for job in left:
        pool.client.cancel(job.id)
    for job in left:
        until(lambda job=job: (status := job.seen()) is not None and status.state.final, job.seen)  # type: ignore[misc]
    pool.jobs.clear()


def follows(states: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the wanted states come one right after the other somewhere."""
    return any(list(states[at : at + len(wanted)]) == list(wanted) for at in range(len(states)))


def test_a_gang_saves_and_makes_way_for_one_that_is_due_and_goes_on_from_that_very_save(pool: Pool) -> None:
    victim = pool.submit("victim", PACED_GPT, 4, priority=90)
    victim.trains(4, beyond=1)
    apply_policies(pool)
    assert victim.status().state is JobState.RUNNING, "a policy changes nothing of what runs"
    preemptor = pool.submit("preemptor", UNTIL_ENOUGH, 4, priority=10)
    preemptor.starts()
    waits = victim.until(lambda s: s.state is JobState.PENDING)
    assert waits.last_checkpoint is not None and waits.last_checkpoint.step > 1
    told = pool.stack.ok("why", victim.id, "--nodes")
    assert "0 of 4" in told or "4 devices" in told, told
    assert all(f"{node}  " in told for node in pool.nodes), "each node says something"
    while_it_waited(pool, preemptor, victim)
    preemptor.succeeds()
    victim.trains(4, beyond=waits.last_checkpoint.step)
    assert victim.succeeds().attempt == 1
    assert pool.every_step_once(victim) == [(0, 4), (waits.last_checkpoint.step, 4)]
    assert pool.resumed_from(victim) == [waits.last_checkpoint.step]
    states = pool.states(victim)
    assert follows(states, ["RUNNING", "CHECKPOINTING", "PREEMPTED", "PENDING"]), states
    assert states[-1] == "SUCCEEDED" and states.count("PREEMPTED") == 1, states


def apply_policies(pool: Pool) -> None:
    """By the command line while jobs run: a good one counts, a bad one is told with its line and the good one stays."""
    good, bad, wrong = (pool.folder / f"{name}.yaml" for name in ("good", "bad", "wrong"))
    good.write_text(POLICY)
    bad.write_text(POLICY + "teams:\n- name: a\n  weight: -1\n")
    wrong.write_text(POLICY + "teams:\n- name: a\n  guaranteed: {h1000: 4}\n")
    assert json.loads(pool.stack.ok("policy", "apply", pool.name, str(good), "--json"))["version"] == 1
    faulty = pool.stack.run("policy", "apply", pool.name, str(bad))
    assert faulty.code == 2 and "bad.yaml:7: " in faulty.err and "weight" in faulty.err, faulty.err
    refused = pool.stack.run("policy", "apply", pool.name, str(wrong))
    assert refused.code == 3 and "line 7: " in refused.err and "h1000" in refused.err, refused.err
    assert pool.stack.ok("policy", "show", pool.name) == POLICY


def while_it_waited(pool: Pool, preemptor: Job, victim: Job) -> None:
    """What the preemptor was to be told while the victim saved for it; and what is told in SQL of the victim, which waits now."""
    of_victim = f"WHERE job_id = '{victim.id}'"
    saves = f"SELECT toUnixTimestamp64Milli(at) AS at_ms FROM statuses_rows FINAL {of_victim} AND state = 'CHECKPOINTING' ORDER BY at"
    (first, *_) = until(lambda: pool.rows(saves))
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(first['at_ms'] // 1000))}.{first['at_ms'] % 1000:03d}"
    (told,) = pool.stack.run("why", preemptor.id, "--at", moment, "--json").objects()
    assert told["obstacle"] == "COMING" and victim.id in told["text"], told
    since = f"AND toUnixTimestamp64Milli(at) >= {first['at_ms']}"
    (row, *_) = until(lambda: pool.rows(f"SELECT obstacle, text FROM explanations {of_victim} {since} ORDER BY at"))
    assert row["obstacle"] in ("NO_ROOM", "CLAIMED") and row["text"], row


def test_an_elastic_gang_grows_into_idle_devices_and_shrinks_for_a_newcomer(pool: Pool) -> None:
    first = pool.submit("first", UNTIL_ENOUGH, 3)
    first.starts()
    elastic = pool.submit("elastic", PACED_GPT, {"ranks": 4, "min_ranks": 1})
    elastic.trains(1, beyond=1)
    first.succeeds()
    grown = elastic.trains(4)
    elastic.trains(4, beyond=(grown.step or 0) + 2)
    newcomer = pool.submit("newcomer", UNTIL_ENOUGH, 2)
    newcomer.starts()
    shrunk = elastic.trains(2)
    elastic.trains(2, beyond=(shrunk.step or 0) + 2)
    assert elastic.status().world_size == 2
    elastic.succeeds()
    newcomer.succeeds()
    sizes = pool.every_step_once(elastic)
    ranks = [ranks for _, ranks in sizes]
    grew = ranks[:-1]  # at once, or as the ranks of the first one left their devices
    assert grew[0] == 1 and grew[-1] == 4 and grew == sorted(grew) and ranks[-1] == 2, sizes
    assert {step for step, _ in sizes[1:]} <= set(pool.resumed_from(elastic))
    saved_by = pool.rows(f"SELECT world_size FROM checkpoints WHERE job_id = '{elastic.id}' ORDER BY commit")
    assert [row["world_size"] for row in saved_by] == ranks
    losses = pool.rows(f"SELECT step, value FROM step_metrics WHERE job_id = '{elastic.id}' AND metric = 'loss' AND rank = 0 ORDER BY step")
    assert sum(r["value"] for r in losses[-10:]) < sum(r["value"] for r in losses[:10]), "it learned, whatever its size"


def test_a_drained_node_is_left_and_stays_closed(pool: Pool) -> None:
    job = pool.submit("drained", PACED_GPT, 2)
    (node,) = {str(p.node_id) for p in job.trains(2, beyond=1).allocation}
    told = pool.stack.ok("node", "drain", node, "--deadline-s", "600", "--reason", "new fans")
    assert "DRAINING" in told and f"{job.id} leaves by" in told
    moved = job.until(lambda s: s.state is JobState.RUNNING and int(s.epoch) == 2)
    assert node not in {str(p.node_id) for p in moved.allocation}
    waiting = pool.submit("waiting", "print('there')", 2)
    waiting.until(lambda s: s.state is JobState.PENDING)
    assert job.succeeds().attempt == 1
    waiting.until(lambda s: s.state is JobState.SUCCEEDED)
    whole = pool.submit("whole", "print('there')", 4)
    closed = until(lambda: pool.rows(f"SELECT text, refusals, unblock FROM explanations WHERE job_id = '{whole.id}'"))
    assert "1 node closed" in str(closed), closed
    assert pool.rows(f"SELECT restriction, restriction_reason AS why FROM nodes WHERE node_id = '{node}'") == [
        {"restriction": "DRAINING", "why": "new fans"}
    ]
    assert whole.status().state is JobState.PENDING
    pool.stack.ok("node", "uncordon", node)
    whole.until(lambda s: s.state is JobState.SUCCEEDED)
    (begun, (step, ranks)) = pool.every_step_once(job)
    assert begun == (0, 2) and ranks == 2 and pool.resumed_from(job) == [step]
    assert follows(states := pool.states(job), ["RUNNING", "CHECKPOINTING", "PREEMPTED", "PENDING"]), states


def test_roles_run_their_own_commands_in_one_gang(pool: Pool) -> None:
    say = (
        "import os; print({!r}, *(os.environ[k] for k in ('RANK', 'WORLD_SIZE', 'ROLE_NAME', 'ROLE_RANK', 'ROLE_WORLD_SIZE')), flush=True)"
    )
    roles = [{"name": "trainer", "ranks": 3}, {"name": "reader", "ranks": 1, "command": pool.script(say.format("reads"))}]
    job = pool.submit("roles", say.format("trains"), {"ranks": 4, "roles": roles})
    job.until(lambda s: s.state is JobState.SUCCEEDED)
    expected = {f"trains {r} 4 trainer {r} 3" for r in range(3)} | {"reads 3 4 reader 0 1"}
    query = f"SELECT line FROM logs WHERE job_id = '{job.id}'"
    until(lambda: {str(row["line"]) for row in pool.rows(query)} == expected, lambda: pool.rows(query))


def test_two_halves_of_a_device_run_beside_each_other(pool: Pool) -> None:
    halves = [pool.submit(f"half{n}", UNTIL_ENOUGH, 1, resources={"device_type": "cpu", "device_share": 500}) for n in range(2)]
    for half in halves:
        half.starts()
    slots = {(str(p.node_id), p.devices) for half in halves for p in half.status().allocation}
    assert len(slots) == 1, slots
    for half in halves:
        half.succeeds()


def test_the_journal_gives_the_same_decisions_again(pool: Pool) -> None:
    done = pool.stack.run("replay", "--verify", "--json")
    assert done.code == 0, done.out + done.err
