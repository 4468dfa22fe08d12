"""Vets what comes on control before it is decided on: by the keys of the state that a batch is decided on, of registrations in it, and,
where a name has none here, of the other partitions.

Holds: what is refused goes on as an input that cannot be read, so the journal says so and its bytes become a dead letter.
Never: drops an input.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainhouse.events import ForgetNodeKey, MovePool, NodeRegistered
from trainhouse.events.security.signing import signature_of
from trainhouse.events.security.vetting import KeySet, Known, VettingRules, key_that_counts, refusal
from trainhouse.events.wire.journal import MAX_REASON_CHARS, JournaledInput
from trainhouse.scheduler.core.protocol.batch import Pending
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.stream.interfaces import Entry


def vetting_by(
    rules: Callable[[], VettingRules], topic: str
) -> Callable[[ScheduleState, Sequence[Entry], Sequence[Pending], Sequence[ScheduleState]], list[Pending]]:
    """Vets each batch by the rules of that moment."""
    return lambda state, entries, waiting, others: vetted(rules(), topic, state, entries, waiting, others)


def vetted(
    rules: VettingRules,
    topic: str,
    state: ScheduleState,
    entries: Sequence[Entry],
    waiting: Sequence[Pending],
    others: Sequence[ScheduleState] = (),
) -> list[Pending]:
    """The inputs; those that are not signed as they must be are refused. `others`: the other partitions' states, as they are known here."""
    keys = _Keys(state, others)
    return [_one(rules, keys, topic, entry, item) for entry, item in zip(entries, waiting, strict=True)]


class _Keys:
    """Keys of one batch, over a state that does not change meanwhile."""

    def __init__(self, state: ScheduleState, others: Sequence[ScheduleState]) -> None:
        self._state = state
        self._others = others
        self.new: dict[str, str] = {}
        self.signed_by = ""
        """The key of the record that is looked at: a forgotten node's key is known by its digest only."""

    def of_node(self, node_id: str) -> str:
        return self.new[node_id] if node_id in self.new else self._in(self._state, node_id) or self._of_moved(node_id)

    def _of_moved(self, node_id: str) -> str:
        """The key of a node that went to another partition with its pool, while its reports may still come here."""
        keys = (moved.keys.key_of(node_id, self.signed_by) for moved in self._state.moved.values())
        return next(filter(None, keys), "")

    def _in(self, state: ScheduleState, node_id: str) -> str:
        node = state.nodes.get(node_id)
        return (node.public_key if node is not None else "") or state.kept_keys.key_of(node_id, self.signed_by)

    def speaks_for(self, node_id: str, signed_by: str) -> str:
        """The key that counts for a node's name, wherever it has one."""
        return key_that_counts(self.of_node(node_id), self._elsewhere(node_id), signed_by)

    def of_job(self, job_id: str, epoch: int | None) -> KeySet:
        """The keys that speak for a job: of the nodes that it runs on, or ran on where an attempt is over; else of any node."""
        job = self._state.jobs.get(job_id)
        nodes: Sequence[str]
        if job is not None and job.allotment is not None and (epoch is None or epoch >= job.epoch):
            nodes = [p.node_id for p in job.allotment.placements]
        elif job is not None and job.ran_on:
            nodes = job.ran_on  # a node that was away ships only now what it had
        elif job is None and (went := [n for m in self._state.moved.values() for n in m.jobs.get(job_id, ())]):
            nodes = went  # it is about to be passed on to where no signature is asked for
        else:
            return _OfAnyNode(self)
        return frozenset(key for node_id in nodes for key in self._keys_of(node_id))

    def is_any_nodes(self, key: str) -> bool:
        """Whether the key is that of any node, in any partition. Costs the same however many nodes there are."""
        nodes = {node_id for state in (self._state, *self._others) for node_id in state.nodes_by_key.get(key, ())}
        if key in self.new.values() or any(key in moved.public_keys for moved in self._state.moved.values()):
            return True
        return any(key in self._keys_of(node_id) for node_id in nodes)

    def any_has_one(self) -> bool:
        """Whether any node has a key."""
        known = any(state.nodes_by_key for state in (self._state, *self._others))
        return known or any(self.new.values()) or any(moved.public_keys for moved in self._state.moved.values())

    def _keys_of(self, node_id: str) -> set[str]:
        own = self.of_node(node_id)
        return {own} if own else self._elsewhere(node_id)

    def _elsewhere(self, node_id: str) -> set[str]:
        """The keys of that name in other partitions."""
        return {key for other in self._others if (key := self._in(other, node_id))}


class _OfAnyNode:
    """The keys of all nodes, which are in no list."""

    def __init__(self, keys: _Keys) -> None:
        self._keys = keys

    def __bool__(self) -> bool:
        return self._keys.any_has_one()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._keys.is_any_nodes(key)


def _one(rules: VettingRules, keys: _Keys, topic: str, entry: Entry, item: Pending) -> Pending:
    envelope = item.item.envelope
    if envelope is None:
        return item
    event, value = envelope.event, entry.value or b""
    node_id, job_id = str(getattr(event, "node_id", "") or ""), str(getattr(event, "job_id", "") or "")
    signature = signature_of(entry.headers)
    keys.signed_by = signature.public_key if signature else ""
    known = Known(
        {node_id: keys.speaks_for(node_id, keys.signed_by)} if node_id else {},
        {job_id: keys.of_job(job_id, getattr(event, "epoch", None))} if job_id and not node_id else {},
    )
    why = refusal(rules, known, topic, value, signature, event)
    if not why and isinstance(event, MovePool) and rules.required and not rules.platform_key:
        why = "this scheduler has no key to sign a pool's state with, and signatures are required; set TRAINHOUSE_SCHEDULER_SIGNING_KEY"
        return replace(item, item=JournaledInput(item.offset, None, value), refusal=why, event_id=str(envelope.id))
    if why:
        claimed = f"node {node_id}" if node_id else f"job {job_id}" if job_id else "platform"
        return replace(item, item=JournaledInput(item.offset, None, value), refusal=why[:MAX_REASON_CHARS], forged=claimed)
    if isinstance(event, NodeRegistered) and event.public_key and not keys.of_node(node_id):
        keys.new[node_id] = event.public_key
    if isinstance(event, ForgetNodeKey):
        keys.new[node_id] = ""
    return item
