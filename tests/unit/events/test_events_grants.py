"""The table of grants: who may write what others rely on."""

import pytest

from trainhouse.events.security.grants import (
    DESCRIBE,
    GROUP,
    OPERATOR,
    PRINCIPALS,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    allowed,
    grants,
    project_account,
    project_grants,
    project_of_account,
)
from trainhouse.events.wire import topics
from trainhouse.events.wire.topics import TOPICS

# Written by nobody yet, or by the operator's own commands alone.
NOBODYS = {*(topics.JOURNAL_REPAIRS, topics.TOPOLOGY, topics.UPGRADES_FINISHED, topics.OPERATIONS)}
# Read by the operator's commands alone.
OPERATORS = {topics.OPERATION_REPLIES}


def writers(topic: str) -> set[str]:
    return {principal for principal in PRINCIPALS if allowed(principal, TOPIC, topic, WRITE)}


def test_every_topic_has_a_reader_and_a_writer() -> None:
    for topic in TOPICS:
        assert writers(topic.name) or topic.name in NOBODYS, topic.name
        assert any(allowed(principal, TOPIC, topic.name, READ) for principal in PRINCIPALS) or topic.name in OPERATORS, topic.name


@pytest.mark.parametrize(
    ("topic", "whose"),
    [
        (topics.DECISIONS, {"scheduler"}),
        (topics.ALLOCATIONS, {"scheduler"}),
        (topics.POLICIES, {"scheduler", "expire"}),
        (topics.POOLS, {"scheduler"}),
        (topics.STATUS, {"scheduler", "intake", "expire"}),
        (topics.DIRECTORY, {"intake"}),
        (topics.ADMISSION, {"intake"}),
        (topics.HEARTBEATS, {"agent"}),
        (topics.JOBS, {"gateway", "scheduler", "intake", "tuner"}),
        (topics.TOKENS, {"gateway"}),
        (topics.PROJECTS, {"intake"}),
        (topics.DATASETS, {"intake"}),
        (topics.REGISTRY, {"intake"}),
        (topics.MODELS, {"intake"}),
        (topics.MODEL_HISTORY, {"intake"}),
        (topics.MODEL_REQUESTS, {"intake", "gateway", "alerts"}),
        (topics.OBSERVATIONS, {"gateway"}),
        (topics.MODEL_DRIFT, {"alerts"}),
        (topics.TUNING, {"tuner"}),
        (topics.STUDIES, {"tuner"}),
        (topics.STUDY_HISTORY, {"tuner"}),
        (topics.STUDY_REQUESTS, {"tuner", "gateway"}),
        (topics.UPGRADES, {"scheduler", "intake", "tuner"}),
        (topics.UPGRADES_FINISHED, set()),
        (f"{topics.STATUS}.vision", {"scheduler", "intake", "expire"}),
        (f"{topics.JOBS}.vision", set()),
    ],
)
def test_who_writes_what_others_act_on(topic: str, whose: set[str]) -> None:
    assert writers(topic) == whose


def test_an_agent_speaks_of_its_node_and_decides_nothing() -> None:
    for topic in (topics.DECISIONS, topics.ALLOCATIONS, topics.STATUS, topics.JOBS, topics.VERDICTS, topics.AUDIT, topics.TOKENS):
        assert not allowed("agent", TOPIC, topic, WRITE)
    assert not allowed("agent", TOPIC, topics.JOBS, READ)
    assert not any(row.kind == TRANSACTIONAL_ID for row in grants() if row.principal == "agent")


def test_a_name_counts_whole_and_a_prefix_as_one() -> None:
    assert allowed("scheduler", TRANSACTIONAL_ID, "trainhouse.decisions-3", WRITE)
    assert not allowed("scheduler", TRANSACTIONAL_ID, "trainhouse.decision", WRITE)
    assert allowed("intake", TOPIC, f"{topics.JOBS}.vision", READ)
    assert not allowed("gateway", TOPIC, f"{topics.JOBS}.vision", WRITE)
    assert not allowed("intake", TOPIC, f"{topics.JOBS}-vision", READ)
    assert not allowed("intake", TOPIC, f"{topics.DECISIONS}.vision", READ)
    assert not allowed("agent", TOPIC, f"{topics.STATUS}.vision", READ)
    assert not allowed("intake", GROUP, "trainhouse-scheduler", READ)


def test_who_reads_or_writes_may_ask_where_a_topic_ends() -> None:
    assert allowed("agent", TOPIC, topics.CONTROL, DESCRIBE)
    assert not allowed("agent", TOPIC, topics.CONTROL, READ)
    assert not allowed("agent", TOPIC, topics.DECISIONS, DESCRIBE)


def test_only_the_operator_may_do_everything() -> None:
    assert allowed(OPERATOR, TOPIC, topics.DECISIONS, WRITE)
    assert not allowed("mallory", TOPIC, topics.JOBS, READ)
    assert OPERATOR not in PRINCIPALS


def test_a_project_writes_its_requests_and_reads_its_statuses_and_nothing_else() -> None:
    mine = {(row.kind, row.name, row.operation, row.prefixed) for row in project_grants("vision")}
    assert mine == {
        (TOPIC, f"{topics.JOBS}.vision", WRITE, False),
        (TOPIC, f"{topics.STATUS}.vision", READ, False),
        (GROUP, "project-vision.", READ, True),
    }


@pytest.mark.parametrize("other", ["visio", "vision-2", "Vision", "trainhouse", "project-vision"])
def test_no_projects_groups_or_topics_begin_as_anothers(other: str) -> None:
    theirs = ((TOPIC, f"{topics.JOBS}.{other}"), (TOPIC, f"{topics.STATUS}.{other}"), (GROUP, f"{project_account(other)}.x"))
    assert not any(allowed("project-vision", kind, name, operation) for kind, name in theirs for operation in (READ, WRITE, DESCRIBE))
    platforms = [(row.kind, row.name) for row in grants()]
    assert not any(allowed(project_account(other), kind, name, operation) for kind, name in platforms for operation in (READ, WRITE))


@pytest.mark.parametrize("name", ["project-", "project-a.b", "projector", "intake", "project-*"])
def test_a_name_that_is_no_projects_account_is_let_nothing(name: str) -> None:
    assert project_of_account(name) is None
    assert not allowed(name, TOPIC, f"{topics.JOBS}.a", WRITE)


def test_no_part_is_called_as_a_projects_account() -> None:
    assert [project_of_account(name) for name in (*PRINCIPALS, OPERATOR)] == [None] * (len(PRINCIPALS) + 1)
    with pytest.raises(ValueError, match="cannot have topics"):
        list(project_grants("a.b"))
