"""Pools, policies, nodes and changes on the command line: the parts that need no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainhouse.cli.data.replay import moment_of, too_early
from trainhouse.cli.fleet import node_commands, policies, pool_rows, pools
from trainhouse.cli.jobs.changes import limits_asked, unchanged
from trainhouse.cli.main import build
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.client import Table, pool_view
from trainhouse.client.errors import JobEndedError, NotReachableError
from trainhouse.client.kafka.journal_answers import outcome_of
from trainhouse.events import ChangeRefused, JobRejected, JobReviewed, JobState, JobStatus, NodeRestricted, SchedulingPolicy
from trainhouse.events.wire.journal import ClockTicked

GROUPS = {"pool": ("create", "move", "show"), "policy": ("show", "diff", "apply"), "node": ("cordon", "uncordon", "drain", "quarantine")}


@pytest.mark.parametrize(("group", "command"), [(g, c) for g, commands in GROUPS.items() for c in commands])
def test_help_of_each_command_has_an_example_and_json(group: str, command: str) -> None:
    found = CliRunner().invoke(build(), [group, command, "--help"])
    assert found.exit_code == 0, found.output
    assert f"trainhouse {group} {command}" in found.output
    assert "--json" in found.output


@pytest.mark.parametrize(
    ("known", "wanted", "chosen"),
    [
        ({}, None, 0),
        ({"a": 0}, None, 1),
        ({"a": 0, "b": 1, "c": 2, "d": 3}, None, 0),
        ({"a": 0, "b": 0, "c": 1, "d": 3}, None, 2),
        ({"a": 0}, 0, 0),
        ({"new": 2}, None, 2),
        ({"new": 2}, 2, 2),
    ],
)
def test_a_pool_goes_to_the_partition_with_the_fewest(known: dict[str, int], wanted: int | None, chosen: int) -> None:
    assert pools.choose(known, 4, "new", wanted) == chosen


def test_a_pool_is_created_where_it_is_and_no_partition_is_made_up() -> None:
    with pytest.raises(CliError, match="partition 2 already; `trainhouse pool move new --to 1`"):
        pools.choose({"new": 2}, 4, "new", 1)
    with pytest.raises(CliError, match="0 to 3"):
        pools.choose({}, 4, "new", 4)


def test_an_unknown_pool_is_told_with_those_there_are() -> None:
    error = pools.unknown("gpu", ["b", "a"])
    assert error.code == Exit.NOT_FOUND
    assert "known: a, b" in str(error) and "trainhouse pool create gpu" in str(error)


def test_a_policy_with_faults_is_told_by_line_and_field_before_anything_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("order: fair\nteams:\n- {name: a, parent: b}\n- {name: b, parent: a}\n")
    with pytest.raises(CliError, match=r"policy.yaml:\d+: teams.*cycle") as caught:
        policies.read(str(path))
    assert caught.value.code == Exit.USAGE and "nothing was sent" in str(caught.value)
    path.write_text("order: fair\nteams:\n- name: a\n  weight: -1\n")
    with pytest.raises(CliError, match=r"policy.yaml:4: teams"):
        policies.read(str(path))
    path.write_text("order: [fair\n")
    with pytest.raises(CliError, match="YAML"):
        policies.read(str(path))
    with pytest.raises(CliError, match="cannot be read") as missing:
        policies.read(str(tmp_path / "none.yaml"))
    assert missing.value.code == Exit.NOT_FOUND


def test_a_policy_is_written_as_a_file_that_reads_back_the_same(tmp_path: Path) -> None:
    policy = SchedulingPolicy.model_validate({"name": "x", "teams": [{"name": "a", "limit": {"h100": 4}}]})
    path = tmp_path / "policy.yaml"
    path.write_text(policies.as_yaml(policy.model_dump(mode="json")))
    assert policies.read(str(path)) == (policy, path.read_text())


def test_the_default_policy_that_is_shown_is_that_of_the_model() -> None:
    assert list(policies.default_policy().items()) == list(SchedulingPolicy().model_dump(mode="json").items())


class _Sql:
    """Answers like the SQL endpoint from a table of nodes."""

    def __init__(self, nodes: dict[str, str] | None) -> None:
        self._nodes = nodes

    def table(self, query: str) -> Table:
        if self._nodes is None:
            raise NotReachableError("ClickHouse does not answer")
        if "WHERE" in query:
            return Table(("pool",), tuple((pool,) for node, pool in self._nodes.items() if f"'{node}'" in query))
        return Table(("node_id",), tuple((n,) for n in sorted(self._nodes)))


def test_the_pool_of_a_node_is_found() -> None:
    sql: Any = _Sql({"gpu-1": "a", "gpu-2": "b"})
    assert node_commands.pool_of(sql, "gpu-2") == "b"
    with pytest.raises(CliError, match=r"no node 'gpu-3'; did you mean gpu-2 or gpu-1") as caught:
        node_commands.pool_of(sql, "gpu-3")
    assert caught.value.code == Exit.NOT_FOUND
    silent: Any = _Sql(None)
    with pytest.raises(CliError, match="--pool"):
        node_commands.pool_of(silent, "gpu-1")


def restricted(restriction: str, **more: Any) -> NodeRestricted:
    return NodeRestricted.model_validate({"node_id": "n", "pool": "p", "restriction": restriction, "at_ms": 1} | more)


def test_a_drain_tells_which_gangs_leave_and_by_when() -> None:
    gang = {"job_id": "j", "state": "RUNNING", "ranks": 8, "user": "ada", "team": "vision"}
    first, second = node_commands.lines_of(restricted("DRAINING", reason="fan", deadline_ms=60_000), [gang])
    assert first == "node n of pool p is DRAINING: fan"
    assert second == "  j leaves by 1970-01-01 00:01:00 UTC: 8 ranks of ada, team vision, now RUNNING"
    assert node_commands.lines_of(restricted("DRAINING"), [])[1] == "  no gang runs there"
    assert node_commands.lines_of(restricted("NONE"), []) == ["node n of pool p is open again"]


def test_the_record_that_handled_a_request_says_what_came_of_it() -> None:
    told, refused = restricted("CORDONED"), ChangeRefused.model_validate({"pool": "p", "event_id": "e", "reason": "no", "refused_at_ms": 1})

    def outcome(*decisions: Any, elsewhere: bool = True) -> Any:
        return outcome_of(decisions, "e", NodeRestricted, lambda d: d.node_id == "n", reported_elsewhere=elsewhere)

    assert outcome_of(None, "e", NodeRestricted, lambda _: True, reported_elsewhere=True) is None
    assert outcome(ClockTicked()) == (None,), "nothing came of it: it is so already"
    assert outcome(told) is None and outcome(refused) is None, "its own topic tells"
    assert outcome(told, elsewhere=False) == (told,)
    assert outcome(told.model_copy(update={"node_id": "other"})) == (None,), "another request of the same batch"


def test_a_refused_review_is_no_review_without_effect() -> None:
    refused = JobRejected.model_validate({"job_id": "j", "submission_id": "e", "reason": "no", "rejected_at_ms": 1})
    assert outcome_of((refused,), "e", JobReviewed, lambda _: True, reported_elsewhere=True) is None, "the status topic tells why"
    assert outcome_of((refused,), "other", JobReviewed, lambda _: True, reported_elsewhere=True) == (None,)


def test_limits_that_are_not_named_stay() -> None:
    assert limits_asked(None, None, None) == {}
    assert limits_asked(2, "1h", "90s") == {"restarts": 2, "run_time_s": 3600.0, "grace_s": 90.0}
    assert limits_asked(None, "none", None) == {"run_time_s": None}


def test_a_moment_is_ago_or_a_time() -> None:
    assert moment_of("-10m", 1_000_000) == moment_of("10m", 1_000_000) == 400_000
    assert moment_of("1970-01-01T00:01", 0) == 60_000
    with pytest.raises(CliError, match="is no time"):
        moment_of("yesterday", 0)
    assert "1970-01-01T00:00:05.000Z" in str(too_early("x", 5_000))
    assert "no record yet" in str(too_early("x", None))


def test_replay_must_be_told_what_to_do() -> None:
    for flags in ([], ["--verify", "--at", "-1m"]):
        found = CliRunner().invoke(build(), ["replay", *flags], env={"TRAINHOUSE_KAFKA_BOOTSTRAP": "127.0.0.1:1"})
        assert isinstance(found.exception, CliError) and "--at TIME" in str(found.exception)


def test_a_pool_without_nodes_is_told_like_any_other() -> None:
    details = dict(pool_rows.details({"pool": "p", "partition": 1} | pool_view.EMPTY))
    assert (details["pool"], details["nodes"], details["policy"]) == ("p, on partition 1", "0", "default, never changed")


def test_a_change_without_effect_says_whether_the_job_has_ended_or_has_these_values() -> None:
    def told(state: str, priority: int | None, **limits: Any) -> str:
        status = JobStatus.model_validate({"job_id": "j", "status_seq": 1, "state": state, "priority": 7})
        return unchanged("j", status, priority, limits)

    ended = "j has ended (CANCELLED), and nothing of it can change; `trainhouse rerun j` submits it again"
    assert told("CANCELLED", 7) == ended == str(JobEndedError("j", JobState.CANCELLED))
    assert str(JobEndedError("j")) == "j has ended, and nothing of it can change; `trainhouse rerun j` submits it again"
    assert told("RUNNING", 7) == "j was not changed: it is RUNNING, and has priority 7 already; name another value"
    assert "has priority 7, 9 restarts, no limit of run time, grace 15 s already;" in told(
        "PENDING", 7, restarts=9, run_time_s=None, grace_s=15.0
    )
    assert "has run time 2h already;" in told("RUNNING", None, run_time_s=7200.0)
