"""Pools, policies, nodes, projects and datasets from a program: what is, and requests with their outcome.

Holds: a request returns when the scheduler has answered it, never before; a refusal is an exception with the scheduler's own words.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from confluent_kafka import KafkaException

from trainhouse.client.dataset_versions import DatasetVersions
from trainhouse.client.errors import NotReachableError
from trainhouse.client.kafka.journal_answers import JournalAnswers
from trainhouse.client.kafka.outcomes import Outcomes
from trainhouse.client.kafka.request_answer import (
    JOURNALS,
    REFUSALS,
    RESTRICTIONS,
    NodeRequest,
    RequestAnswer,
    creates,
    of_review,
    restricts,
    sets,
)
from trainhouse.client.kafka.status_feed import METADATA_TIMEOUT_S, QUIET, unreachable
from trainhouse.client.kafka.topic_events import topic_events
from trainhouse.events import (
    ChangeJob,
    ChangeProject,
    DatasetGranted,
    DatasetGrantRevoked,
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    DeprecateDataset,
    Event,
    ForgetNodeKey,
    GrantDataset,
    JobReviewed,
    MovePool,
    NodeKeyed,
    NodeRestricted,
    PolicyApplied,
    PolicyChanged,
    PoolCreated,
    ProjectApplied,
    PublishDataset,
    ReleaseShard,
    ReviewJob,
    RevokeDatasetGrant,
    ShardReleased,
)
from trainhouse.events.bus.kafka import at_least_s, consumer
from trainhouse.events.bus.repair_log import emptied_records
from trainhouse.events.model.dataset_grant import GrantKey
from trainhouse.events.model.decisions import JobRetuned
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import CONTROL, DATASETS, DECISIONS, NODE_KEYS, POLICIES, POOLS, PROJECTS, VERDICTS

Send = Callable[[Event], str]
E = TypeVar("E", bound=Event)
Mine = Callable[[E, str], bool]


@dataclass(frozen=True)
class Fleet:
    """Requests about pools over one Kafka. `send` puts an event on the public topic and gives its id."""

    kafka: KafkaSettings
    send: Send

    def pools(self) -> dict[str, int]:
        """Every pool that the control plane knows, and its partition. Blocks."""
        return {str(e.pool): e.partition for e in self._newest(POOLS, PoolCreated)}

    def policies(self) -> dict[str, PolicyApplied]:
        """The policy of each pool that was ever given one. Blocks."""
        return {str(e.pool): e for e in self._newest(POLICIES, PolicyApplied)}

    def projects(self) -> dict[str, ProjectApplied]:
        """Every project that was ever declared, and the rule for all others ("*"). Blocks."""
        return {e.project.name: e for e in self._newest(PROJECTS, ProjectApplied)}

    def change_project(self, event: ChangeProject, timeout_s: float) -> ProjectApplied:
        """Declares or changes a project, which must be another than it is. Blocks until it counts. Raises ChangeRefusedError,
        NoReplyError."""
        asked = f"project {event.project.name}"
        return self._published(event, PROJECTS, ProjectApplied, lambda applied, _: sets(event, applied), timeout_s, asked)

    def datasets(self) -> DatasetVersions:
        """Every version of a dataset that was ever published. Blocks."""
        return DatasetVersions.of(event for _, event in topic_events(self.kafka, DATASETS))

    def publish_dataset(self, event: PublishDataset, timeout_s: float) -> DatasetVersionPublished | None:
        """Publishes a version, with its tag. Blocks until jobs may name it; None: they might before. Raises ChangeRefusedError (also
        where it is published, and its tag another's), NoReplyError."""

        def mine(published: DatasetVersionPublished, _: str) -> bool:
            return published.version.name == event.version.name and event.semver in (None, published.semver)

        asked = f"version {event.version.name}"
        return self._news(event, lambda known: known.has(event), DatasetVersionPublished, mine, timeout_s, asked)

    def deprecate_dataset(self, event: DeprecateDataset, timeout_s: float) -> DatasetVersionDeprecated:
        """Deprecates a version that is not. Blocks until no new job may name it. Raises ChangeRefusedError, NoReplyError."""

        def mine(deprecated: DatasetVersionDeprecated, _: str) -> bool:
            return (deprecated.dataset, deprecated.sha256) == (event.dataset, event.sha256)

        asked = f"deprecation of {event.dataset}@sha256:{event.sha256}"
        return self._published(event, DATASETS, DatasetVersionDeprecated, mine, timeout_s, asked)

    def release_shard(self, event: ReleaseShard, timeout_s: float) -> ShardReleased:
        """Takes a shard out of quarantine. Blocks until new jobs are not told of it. Raises ChangeRefusedError, NoReplyError."""

        def mine(released: ShardReleased, _: str) -> bool:
            return (released.dataset, released.sha256, released.shard) == (event.dataset, event.sha256, event.shard)

        asked = f"release of shard {event.shard} of {event.dataset}@sha256:{event.sha256}"
        return self._published(event, DATASETS, ShardReleased, mine, timeout_s, asked)

    def grant_dataset(self, event: GrantDataset, timeout_s: float) -> DatasetGranted | None:
        """Lets another project's jobs use a dataset. Blocks until they may; None: they might before. Raises ChangeRefusedError,
        NoReplyError."""

        def mine(granted: DatasetGranted, _: str) -> bool:
            return GrantKey.of(granted) == GrantKey.of(event)

        asked = f"a grant of {GrantKey.of(event).reference} to project {event.project}"
        return self._news(event, lambda known: known.has_grant(event), DatasetGranted, mine, timeout_s, asked)

    def revoke_grant(self, event: RevokeDatasetGrant, timeout_s: float) -> DatasetGrantRevoked:
        """Ends a grant. Blocks until no new job is admitted by it. Raises ChangeRefusedError, NoReplyError."""

        def mine(revoked: DatasetGrantRevoked, _: str) -> bool:
            return GrantKey.of(revoked) == GrantKey.of(event)

        asked = f"the end of project {event.project}'s grant of {GrantKey.of(event).reference}"
        return self._published(event, DATASETS, DatasetGrantRevoked, mine, timeout_s, asked)

    def partitions(self) -> int:
        """Returns the number of partitions of control: pools may be given any of them. Blocks."""
        reader = consumer(self.kafka, **QUIET)
        try:
            return len(reader.list_topics(CONTROL, timeout=at_least_s(reader, METADATA_TIMEOUT_S)).topics[CONTROL].partitions)
        except KafkaException as error:
            raise NotReachableError(unreachable(self.kafka.bootstrap, error)) from error
        finally:
            reader.close()

    def create(self, event: PoolCreated, timeout_s: float) -> PoolCreated | None:
        """Creates a pool. Blocks until its scheduler knows it; None: it knew it before. Raises ChangeRefusedError, NoReplyError."""
        return self._ask(event, POOLS, PoolCreated, lambda d, _: creates(event, d), timeout_s, f"pool {event.pool} was asked for")

    def move(self, event: MovePool, timeout_s: float) -> PoolCreated:
        """Moves a pool to another partition. Blocks until the scheduler of that one has it. Raises ChangeRefusedError, NoReplyError."""

        def mine(created: PoolCreated, _: str) -> bool:
            return (created.pool, created.partition) == (event.pool, event.to_partition)

        return self._published(
            event, POOLS, PoolCreated, mine, timeout_s, f"the move of pool {event.pool} to partition {event.to_partition}"
        )

    def apply(self, event: PolicyChanged, timeout_s: float) -> PolicyApplied | None:
        """Changes a pool's policy. Blocks until it counts; None: it did before. Raises ChangeRefusedError (the old one stays),
        NoReplyError."""

        def mine(applied: PolicyApplied, _: str) -> bool:
            return (applied.pool, applied.policy, applied.text, applied.user) == (event.pool, event.policy, event.text, event.user)

        return self._ask(event, POLICIES, PolicyApplied, mine, timeout_s, f"policy {event.policy.name} for pool {event.pool}")

    def restrict(self, event: NodeRequest, timeout_s: float) -> NodeRestricted | None:
        """Closes or opens a node. Blocks until it counts; None: it was so before. Raises ChangeRefusedError, NoReplyError."""
        asked = f"node {event.node_id} of pool {event.pool}: {RESTRICTIONS[type(event)]}"
        return self._ask(event, VERDICTS, NodeRestricted, lambda d, _: restricts(event, d), timeout_s, asked)

    def forget_key(self, event: ForgetNodeKey, timeout_s: float) -> NodeKeyed | None:
        """Forgets a node's public key. Blocks until it counts; None: none was known. Raises ChangeRefusedError, NoReplyError."""

        def mine(keyed: NodeKeyed, _: str) -> bool:
            return keyed.node_id == event.node_id and not keyed.public_key

        return self._ask(event, NODE_KEYS, NodeKeyed, mine, timeout_s, f"the key of node {event.node_id} of pool {event.pool}")

    def change(self, event: ChangeJob, timeout_s: float) -> JobRetuned | None:
        """Changes a job's priority or limits. Blocks until they count; None: nothing changed. Raises ChangeRefusedError, NoReplyError."""
        return self._ask(event, DECISIONS, JobRetuned, lambda d, _: d.job_id == event.job_id, timeout_s, f"a change of job {event.job_id}")

    def review(self, event: ReviewJob, timeout_s: float) -> JobReviewed | None:
        """Sends a job to review, or ends its review. Blocks until it counts. Raises ChangeRefusedError, NoReplyError."""
        return self._ask(event, VERDICTS, JobReviewed, of_review, timeout_s, f"a review of job {event.job_id}")

    def _ask(self, event: Event, topic: str, kind: type[E], mine: Mine[E], timeout_s: float, asked: str) -> E | None:
        """Sends a request and waits for what comes of it on `topic`; None: its scheduler handled it, and nothing came of it."""
        with self._outcomes(topic) as outcomes:
            answer = RequestAnswer(self.send(event), kind, mine, topic, self._journals())
            return outcomes.first(answer, timeout_s, asked)[0]

    def _news(
        self, event: Event, is_known: Callable[[DatasetVersions], bool], kind: type[E], mine: Mine[E], timeout_s: float, asked: str
    ) -> E | None:
        """Sends a request about a dataset; None where what it asks for holds already, which is then not waited for."""
        with self._outcomes(DATASETS) as outcomes:
            if is_known(self.datasets()):
                self.send(event)  # so that it is sent to all partitions of admission again
                return None
            answer = RequestAnswer(self.send(event), kind, mine, DATASETS, self._journals(), by_decisions=False)
            return outcomes.first(answer, timeout_s, asked)[0]

    def _published(self, event: Event, topic: str, kind: type[E], mine: Mine[E], timeout_s: float, asked: str) -> E:
        """Sends a request that others than its first scheduler answer, on `topic` alone."""
        with self._outcomes(topic) as outcomes:
            answer = RequestAnswer(self.send(event), kind, mine, topic, self._journals(), by_decisions=False)
            found = outcomes.first(answer, timeout_s, asked)[0]
            assert found is not None, "what is published is an event"
            return found

    def _outcomes(self, topic: str) -> Outcomes:
        return Outcomes(self.kafka, sorted({topic, *JOURNALS, *REFUSALS}), JOURNALS)

    def _journals(self) -> dict[str, JournalAnswers]:
        return {journal: JournalAnswers(partial(self._repairs, journal)) for journal in JOURNALS}

    def _repairs(self, journal: str) -> frozenset[str]:
        """The hashes of a journal's records that count as empty. Blocks."""
        try:
            return emptied_records(self.kafka, journal)
        except BusUnavailableError as error:
            raise NotReachableError(unreachable(self.kafka.bootstrap, error)) from error

    def _newest(self, topic: str, kind: type[E]) -> list[E]:
        """The newest event of each key of a compacted topic that are of one kind."""
        return list({key: event for key, event in topic_events(self.kafka, topic) if isinstance(event, kind)}.values())
