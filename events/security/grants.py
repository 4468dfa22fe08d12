"""Kafka ACLs of the platform's processes: topic x principal x operation, in one table.

Holds: a principal has what it needs and nothing else; what is not in the table is refused. Ranks have no principal: they reach no broker.
A project may have an account of its own: it writes the project's topic for requests, reads that of its statuses, and nothing else.
Every part reads the recorded partition counts, which it checks as long as it runs; the operator alone writes them.
Never: a principal that writes what another one decides. Only the scheduler writes decisions, allocations and statuses of its jobs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from trainhouse.events.wire import topics as t
from trainhouse.events.wire.project_topics import JOBS_PREFIX, STATUS_PREFIX, may_have_topics, topics_of

READ, WRITE, DESCRIBE = "READ", "WRITE", "DESCRIBE"
TOPIC, GROUP, TRANSACTIONAL_ID = "TOPIC", "GROUP", "TRANSACTIONAL_ID"
# The person whose stack it is: may do everything, as may the broker's own account.
OPERATOR = "operator"
# Accounts of projects begin so, and no part's does.
_OF_PROJECT = "project-"
# At the end of a name: everything that begins with what stands before it.
ANY = "*"


@dataclass(frozen=True)
class Needs:
    """Names of what one principal reads, writes, joins; who reads or writes may also ask where a topic ends."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    describes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()


@dataclass(frozen=True, order=True)
class Grant:
    """One row, as the brokers keep it."""

    principal: str
    kind: str
    name: str
    operation: str
    prefixed: bool = False


# What the projector reads: all that tables and lineage are made of.
_HISTORY = (
    *(t.JOBS, t.CONTROL, t.DECISIONS, t.ALLOCATIONS, t.POOLS, t.POLICIES, t.PROJECTS, t.HEARTBEATS, t.VERDICTS, t.METRICS, t.TRACKING),
    t.DATASETS,
    *(t.TRACKED_METRICS, t.ENVIRONMENTS, t.CHECKPOINTS),
    *(t.LOGS, t.STATUS, t.EXPLANATIONS, t.RESERVATIONS, t.ALERTS, t.AUDIT, t.NODE_AUDIT, t.TOKENS, t.SERVICES),
    *(t.DEAD_LETTERS, t.NODE_KEYS, t.JOURNAL_REPAIRS, t.MODEL_HISTORY),
    *(t.OBSERVATIONS, t.MODEL_DRIFT, t.STUDY_HISTORY, t.STUDIES),
)
# What follows from the scheduler's decisions and from nothing else.
_DECIDED = (t.ALLOCATIONS, t.POOLS, t.POLICIES, t.EXPLANATIONS, t.RESERVATIONS, t.ALERTS, t.NODE_KEYS)
# They announce themselves on the first; an update is finished on the second, by an operator alone.
_UPDATES = (t.UPGRADES, t.UPGRADES_FINISHED)
# What ended is deleted from these.
_ENDING = (t.STATUS, f"{STATUS_PREFIX}{ANY}", t.EXPLANATIONS, t.RESERVATIONS, t.TRACES, t.POLICIES)
TOMBSTONES = "trainhouse-tombstones"

PRINCIPALS: dict[str, Needs] = {
    "intake": Needs(
        reads=(
            *(t.JOBS, f"{JOBS_PREFIX}{ANY}", t.ADMISSION, t.DIRECTORY, t.SNAPSHOTS, t.JOURNAL_REPAIRS, t.PROJECTS, *_UPDATES),
            # The registry of models, which it hosts: what it decided; a job's status and spec, and the versions of its data; runs and
            # models that clients logged.
            *(t.MODEL_REQUESTS, t.REGISTRY, t.STATUS, t.CONTROL, t.DATASETS, t.TRACKING),
        ),
        writes=(
            *(t.ADMISSION, t.DIRECTORY, t.SNAPSHOTS, t.UPGRADES, t.CONTROL, t.PROJECTS, t.DATASETS, t.STATUS, f"{STATUS_PREFIX}{ANY}"),
            # The audit: jobs that are refused another project's dataset.
            *(t.VERDICTS, t.ALERTS, t.DEAD_LETTERS, t.AUDIT),
            # The registry of models: what its process found in the store is a request to itself.
            *(t.REGISTRY, t.MODELS, t.MODEL_HISTORY, t.MODEL_REQUESTS),
            # Jobs that evaluate new versions, as their gates say.
            t.JOBS,
        ),
        groups=("trainhouse-intake", "trainhouse-intake-projects", "trainhouse-intake-models", f"{t.REGISTRY}-{ANY}"),
        transactions=(f"{t.REGISTRY}-{ANY}",),
    ),
    "scheduler": Needs(
        reads=(t.CONTROL, t.PROGRESS, t.DECISIONS, t.SNAPSHOTS, t.JOURNAL_REPAIRS, t.STATUS, *_UPDATES),
        writes=(
            *(t.DECISIONS, t.SNAPSHOTS, t.UPGRADES, t.STATUS, f"{STATUS_PREFIX}{ANY}", t.VERDICTS, t.DEAD_LETTERS, *_DECIDED),
            # A pool that moves to another partition, and what comes about it afterwards.
            t.CONTROL,
            # A shard that ranks cannot read: intake decides about it.
            t.JOBS,
        ),
        # A publisher's mark is the committed offset of a group that is named as its transactions.
        groups=("trainhouse-scheduler", f"{t.DECISIONS}-{ANY}"),
        transactions=(f"{t.DECISIONS}-{ANY}",),
    ),
    "detector": Needs(
        reads=(t.HEARTBEATS, t.POOLS, t.POLICIES, t.VERDICTS, t.NODE_KEYS),
        writes=(t.VERDICTS, t.CONTROL, t.DEAD_LETTERS),
        groups=("trainhouse-detector",),
    ),
    "tuner": Needs(
        reads=(
            *(t.STUDY_REQUESTS, t.TUNING, t.SNAPSHOTS, t.JOURNAL_REPAIRS, *_UPDATES),
            # Jobs of trials: their statuses, the metrics that they log, and the prices of their devices.
            *(t.STATUS, t.METRICS, t.TRACKED_METRICS, t.POLICIES),
        ),
        writes=(
            *(t.TUNING, t.SNAPSHOTS, t.UPGRADES, t.STUDIES, t.STUDY_HISTORY, t.DEAD_LETTERS, t.VERDICTS, t.ALERTS),
            # What its process suggests and observes is a request to itself; trials are jobs.
            *(t.STUDY_REQUESTS, t.JOBS),
        ),
        groups=("trainhouse-tuner", "trainhouse-tuner-trials", f"{t.TUNING}-{ANY}"),
        transactions=(f"{t.TUNING}-{ANY}",),
    ),
    # It tells the audit who asked in SQL.
    "projector": Needs(reads=_HISTORY, writes=(t.AUDIT,), groups=("trainhouse-projector",)),
    "alerts": Needs(
        reads=(t.VERDICTS, t.ALERTS),
        # Drift of models, and the rollback of a champion whose gate says so: a request to the registry, which decides.
        writes=(t.ALERTS, t.SERVICES, t.MODEL_DRIFT, t.MODEL_REQUESTS),
        groups=("trainhouse-alerts", "trainhouse-alerts-webhook"),
        transactions=("trainhouse-alerts",),
    ),
    "gateway": Needs(
        # The journal has a job's spec as it was submitted, to run it again.
        reads=(t.STATUS, t.TOKENS, t.PROJECTS, t.DECISIONS, t.MODELS, t.MODEL_HISTORY, t.STUDIES, t.STUDY_HISTORY),
        writes=(t.JOBS, t.MODEL_REQUESTS, t.STUDY_REQUESTS, t.OBSERVATIONS, t.TRACKING, t.TRACKED_METRICS, t.AUDIT, t.TOKENS, t.OPERATIONS),
        describes=_HISTORY,
        groups=("trainhouse-reader",),
    ),
    "agent": Needs(
        # Of datasets their grants: ranks of another project read by them.
        reads=(t.ALLOCATIONS, t.POOLS, t.VERDICTS, t.OPERATIONS, t.NODE_KEYS, t.DATASETS),
        writes=(
            *(t.CONTROL, t.PROGRESS, t.HEARTBEATS, t.METRICS, t.ENVIRONMENTS, t.CHECKPOINTS, t.LOGS),
            *(t.OPERATION_REPLIES, t.NODE_AUDIT),
        ),
        groups=("trainhouse-reader",),
    ),
    "exporter": Needs(
        reads=(t.JOBS, t.DECISIONS, t.JOURNAL_REPAIRS, t.ALLOCATIONS, t.STATUS, t.CHECKPOINTS, t.TRACKING, t.TRACES, t.NODE_KEYS),
        writes=(t.TRACES,),
        groups=("trainhouse-exporter",),
    ),
    # It deletes what ended from the compacted topics, and decides nothing.
    "expire": Needs(reads=_ENDING, writes=_ENDING, groups=("trainhouse-reader",), transactions=(TOMBSTONES,)),
}


def project_account(project: str) -> str:
    """The name of a project's own account on the brokers."""
    return _OF_PROJECT + project


def project_of_account(principal: str) -> str | None:
    """The project whose account this is; None for every other principal."""
    project = principal.removeprefix(_OF_PROJECT)
    return project if project != principal and may_have_topics(project) else None


def needs_of_project(project: str) -> Needs:
    """The row of a project's account. Raises ValueError for a name that cannot have topics.

    A project's name holds no '.', so that its groups begin as no other project's, nor the platform's, do.
    """
    jobs, status = topics_of(project)
    return Needs(reads=(status.name,), writes=(jobs.name,), groups=(f"{project_account(project)}.{ANY}",))


def grants(projects: Iterable[str] = ()) -> Iterator[Grant]:
    """The whole table, row by row, with those of these projects' accounts."""
    for principal, needs in PRINCIPALS.items():
        yield from _rows(principal, replace(needs, reads=(*needs.reads, t.TOPOLOGY)))
    for project in projects:
        yield from project_grants(project)


def project_grants(project: str) -> Iterator[Grant]:
    """ACLs of a project's account. Raises ValueError for a name that cannot have topics."""
    return _rows(project_account(project), needs_of_project(project))


def allowed(principal: str, kind: str, name: str, operation: str) -> bool:
    """Whether the brokers let a principal do it. Who reads or writes may describe too."""
    project = project_of_account(principal)
    for grant in grants(() if project is None else (project,)):
        if grant.principal != principal or grant.kind != kind:
            continue
        named = name.startswith(grant.name) if grant.prefixed else name == grant.name
        if named and operation in (grant.operation, DESCRIBE):
            return True
    return principal == OPERATOR


def _rows(principal: str, needs: Needs) -> Iterator[Grant]:
    rows = (
        (TOPIC, READ, needs.reads),
        (TOPIC, WRITE, needs.writes),
        (TOPIC, DESCRIBE, needs.describes),
        (GROUP, READ, needs.groups),
        (TRANSACTIONAL_ID, WRITE, needs.transactions),
    )
    for kind, operation, names in rows:
        yield from (Grant(principal, kind, name.removesuffix(ANY), operation, name.endswith(ANY)) for name in names)
