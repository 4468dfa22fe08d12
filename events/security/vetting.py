"""Whether a node said what is said in its name: signatures of what agents write to control and to heartbeats.

Holds: pure; the first key that a node of a name registers with is that node's, in whichever partition, until an operator forgets it; from
then on nothing unsigned and nothing by another key counts as said by it. What is refused here is journaled as refused, so a replay asks
nobody again.
Never: reads a key of its own; changes state.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainhouse.events.model.attempt import (
    AttemptStarted,
    AttemptStopped,
    LaunchFailed,
    LossDiverged,
    ProgressReported,
    RankExited,
    SessionOpened,
)
from trainhouse.events.model.bad_shard import BadShardFound, TooManyBadSamples
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import CheckpointCompleted
from trainhouse.events.model.decisions import NodeForgotten
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.job_outputs import OutputsSealed
from trainhouse.events.model.node import NodeHeartbeat, NodeKeyed, NodeNoticed, NodeProbed, NodeRegistered
from trainhouse.events.security.signing import Signature
from trainhouse.events.wire.codec import Headers, decode

BY_AGENTS: tuple[type[Event], ...] = (
    NodeRegistered,
    NodeHeartbeat,
    NodeNoticed,
    NodeProbed,
    AttemptStarted,
    AttemptStopped,
    LaunchFailed,
    RankExited,
    SessionOpened,
    ProgressReported,
    LossDiverged,
    BadShardFound,
    TooManyBadSamples,
    OutputsSealed,
    CheckpointCompleted,
)
_NONE: frozenset[str] = frozenset()
FORGED = "the signature is not that of "


@dataclass(frozen=True, slots=True)
class VettingRules:
    """`required`: who has no key yet must sign all the same. `platform_key`: what intake, detector and schedulers sign with, if they do.

    `more_platform_keys`: what they may sign with too: that of before a rotation, until it is retired, or the next one.
    """

    required: bool = False
    platform_key: str = ""
    more_platform_keys: frozenset[str] = frozenset()

    @property
    def platform_keys(self) -> frozenset[str]:
        """All of them; none where they sign nothing."""
        return self.more_platform_keys | ({self.platform_key} if self.platform_key else set())


# Keys that may be too many to list: false where there is none.
KeySet = Container[str]


@dataclass(frozen=True, slots=True)
class Known:
    """The keys that count: of nodes, and of the nodes that a job runs on now; `of_job` has no entry where none counts."""

    nodes: Mapping[str, str]
    of_job: Mapping[str, KeySet]


def key_events(records: Iterable[tuple[bytes | None, Headers]]) -> Iterator[NodeKeyed | NodeForgotten]:
    """The keys of nodes on their topic, and which nodes are forgotten, in order; passes over what cannot be read."""
    for value, headers in records:
        if value is None:
            continue
        try:
            event = decode(value, headers).event
        except InvalidEvent:
            continue
        if isinstance(event, NodeKeyed | NodeForgotten):
            yield event


def key_that_counts(own: str, elsewhere: Collection[str], signed_by: str) -> str:
    """The key of a node where it has none here: one that the name has in another partition speaks for it here too.

    `elsewhere`: the keys of that name there; of several the one that signed counts, else any: what is signed by none of them is refused.
    """
    if own or not elsewhere:
        return own
    return signed_by if signed_by in elsewhere else min(elsewhere)


def refusal(rules: VettingRules, known: Known, topic: str, value: bytes, signature: Signature | None, event: Event) -> str:
    """Returns the reason to ignore a record; empty for a valid one."""
    if not isinstance(event, BY_AGENTS):
        return _of_platform(rules, topic, value, signature)
    node_id = str(getattr(event, "node_id", ""))
    if not node_id:
        return _of_job(rules, known, topic, value, signature, str(getattr(event, "job_id", "")))
    key = known.nodes.get(node_id, "")
    claimed = event.public_key if isinstance(event, NodeRegistered) else key
    if key and claimed != key:
        mend = f"if its disk is new: `trainhouse node forget-key {node_id}` (with `--pool` for the pool that it was in)"
        return f"node {node_id} registers with another key than its own, and a name is one node's in all pools; {mend}"
    wanted = key or claimed
    if signature is None:
        return f"node {node_id} signs what it says, and this is not signed" if wanted or rules.required else ""
    if wanted and signature.public_key != wanted:
        return f"{FORGED}node {node_id}: another key made it"
    return "" if signature.holds(topic, value) else f"{FORGED}node {node_id}: it does not hold"


def _of_job(rules: VettingRules, known: Known, topic: str, value: bytes, signature: Signature | None, job_id: str) -> str:
    """Returns the reason to ignore a record that names a job and no node: it must come from a node that the job runs on."""
    keys: KeySet = known.of_job.get(job_id) or _NONE
    if signature is None:
        return f"the nodes of job {job_id} sign what they say, and this is not signed" if keys or rules.required else ""
    if (keys or rules.required) and signature.public_key not in keys:
        return f"{FORGED}a node that job {job_id} runs on"
    return "" if signature.holds(topic, value) else f"{FORGED}a node of job {job_id}: it does not hold"


def _of_platform(rules: VettingRules, topic: str, value: bytes, signature: Signature | None) -> str:
    # Where the unsigned counts, a wrong signature would only lose what is true: of a key that was changed, say.
    if not rules.required or not rules.platform_keys:
        return ""
    if signature is None:
        return "intake, the detector and schedulers sign what they say, and this is not signed"
    if signature.public_key not in rules.platform_keys or not signature.holds(topic, value):
        return f"{FORGED}intake, the detector or a scheduler"
    return ""
