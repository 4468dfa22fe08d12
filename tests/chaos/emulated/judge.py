"""The judge of an emulated campaign: reads the broker's logs, by no code of the product's protocol but its decoder, and a replay.

Rules: each input counts once and in order; each effect is public once, in the order of the journal; schedules are sound (the simulation's
judges); what was refused came from outsiders; every partition decides at the end; replay decides the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

import orjson

from tests.chaos.emulated.world import PARTITIONS, EmulatedWorld
from tests.simulation import checkers, promise_checkers
from trainhouse.events import decode
from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import Order
from trainhouse.events.wire.journal import InputRefused, JournalRecord, PlacementFrozen
from trainhouse.scheduler.core.protocol.publication import outgoing
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.replay import LogEntry, verify

EFFECTS = (topics.ALLOCATIONS, topics.STATUS, topics.VERDICTS, topics.RESERVATIONS, topics.POLICIES)
SCHEDULE = (
    checkers.no_device_twice,
    checkers.whole_gangs,
    checkers.closed_nodes_get_nothing,
    checkers.broken_gangs_stop,
    checkers.all_over,
    promise_checkers.quotas_kept,
    promise_checkers.preemptors_start,
)


def counted(world: EmulatedWorld, partition: int) -> list[JournalRecord]:
    """The records that count: the first with each seq, counted from 1."""
    found: list[JournalRecord] = []
    for entry in world.broker.committed(topics.DECISIONS, partition):
        if orjson.loads(entry.value or b"")["seq"] == len(found) + 1:
            found.append(JournalRecord.decode(entry.value or b""))
    return found


def judge(world: EmulatedWorld, before: Mapping[int, int]) -> list[str]:
    """All that is wrong. `before`: how long each journal was when the last fault was over."""
    records = {p: counted(world, p) for p in range(PARTITIONS)}
    wrong = [f"{job_id} has not ended" for job_id in sorted(world.jobs - world.ended)]
    for partition, found in records.items():
        wrong += [f"partition {partition}: {x}" for x in _partition(world, partition, found, before[partition])]
    wrong += _effects_once(world, records)
    entries = [LogEntry(p, e.offset, e.value or b"") for p in records for e in world.broker.committed(topics.DECISIONS, p)]
    report = verify(entries, ScheduleMachine())
    wrong += [str(difference) for difference in report.differences]
    if report.recomputed != sum(map(len, records.values())):
        wrong.append(f"replay recomputed {report.recomputed} of {sum(map(len, records.values()))} records")
    return wrong


def _partition(world: EmulatedWorld, partition: int, records: list[JournalRecord], before: int) -> Iterator[str]:
    offsets = [i.offset for r in records for i in r.inputs if i.offset is not None]
    there = [e.offset for e in world.broker.committed(topics.CONTROL, partition)]
    if offsets != there:
        yield f"{len(offsets)} inputs were taken, {len(there)} are there"
    for record, decision in checkers.decided(records):
        if isinstance(decision, PlacementFrozen):
            yield f"seq {record.seq}: placement froze: {decision.reason}"
        if isinstance(decision, InputRefused) and decision.offset not in world.extremes[partition]:
            yield f"seq {record.seq}: the input at {decision.offset} was refused: {decision.reason}"
    letters = len({e.key for e in world.broker.committed(topics.DEAD_LETTERS, partition)})
    refused = sum(isinstance(d, InputRefused) for _, d in checkers.decided(records))
    if partition == 0 and not letters and refused:
        yield f"{refused} inputs were refused, and there is no dead letter"
    if not any(r.inputs for r in records[before:]):
        yield "nothing was decided after the last fault"
    for rule in SCHEDULE:
        yield from (f"{rule.__name__}: {x}" for x in rule(records))


def _effects_once(world: EmulatedWorld, records: Mapping[int, list[JournalRecord]]) -> list[str]:
    """What the records say is what the topics have, each once; in the order of its journal."""
    machine, due = ScheduleMachine(), set[tuple[str, Order]]()
    for partition, found in records.items():
        for record in found:
            for out in outgoing(machine, topics.CONTROL, partition, record):
                if out.topic in EFFECTS:
                    order = decode(out.value, out.headers).order
                    assert order is not None
                    due.add((out.topic, order))
    wrong, seen = [], set[tuple[str, Order]]()
    for topic in EFFECTS:
        for partition in range(PARTITIONS):
            orders: dict[int, list[Order]] = defaultdict(list)
            for entry in world.broker.committed(topic, partition):
                order = decode(entry.value, entry.headers).order
                if order is None:
                    continue  # a report of a halted partition
                wrong += [f"{topic}: {order} came twice"] if (topic, order) in seen else []
                seen.add((topic, order))
                orders[order.partition].append(order)
            wrong += [f"{topic}: {b} follows {a}" for each in orders.values() for a, b in pairwise(each) if b <= a]
    wrong += [f"{topic}: {order} was never public" for topic, order in sorted(due - seen, key=str)[:5]]
    return wrong + [f"{topic}: {order} is public, and no record says so" for topic, order in sorted(seen - due, key=str)[:5]]
