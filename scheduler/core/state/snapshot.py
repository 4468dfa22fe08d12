"""States as canonical bytes, for snapshots and their hashes.

Holds: equal states have equal bytes, whatever the order in which their tables were filled; load(dump(s)) decides as s does.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Final

import orjson

from trainhouse.events import Model, PoolName, SchedulingPolicy
from trainhouse.events.model.bounds import read_stored
from trainhouse.events.model.pool import DevicesClaimed, StartReserved
from trainhouse.scheduler.core.cluster.demand_mix import Mix, Usual
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.protocol.snapshot_steps import SCHEDULE_FORMATS, parse
from trainhouse.scheduler.core.queue.estimates import Estimates
from trainhouse.scheduler.core.state.key_bindings import KeptKeys
from trainhouse.scheduler.core.state.records import Job, Node
from trainhouse.scheduler.core.state.state import Arriving, Freeze, MovedPool, Pool, ScheduleState

FORMAT: Final = SCHEDULE_FORMATS.newest


class Dumps:
    """The JSON of records, kept while they stay what they are: a snapshot costs what changed since the last one."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], dict[str, tuple[Model, orjson.Fragment]]] = {}

    def of(self, partition: int, kind: str, records: Iterable[tuple[str, Model]]) -> list[orjson.Fragment]:
        """The records in their order, as JSON with sorted keys."""
        old = self._kept.get((partition, kind), {})
        new: dict[str, tuple[Model, orjson.Fragment]] = {}
        for name, record in records:
            known = old.get(name)
            new[name] = known if known is not None and known[0] is record else (record, _fragment(record))
        self._kept[partition, kind] = new
        return [fragment for _, fragment in new.values()]


def _fragment(record: Model) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(_plain(record), option=orjson.OPT_SORT_KEYS))


def dump_schedule(state: ScheduleState, dumps: Dumps) -> bytes:
    """JSON with sorted keys."""
    return capture_schedule(state, dumps)()


def capture_schedule(state: ScheduleState, dumps: Dumps) -> Callable[[], bytes]:
    """The same for later: takes what changes in itself as it is, and holds on to the records, which never do."""
    small = {
        "format": FORMAT,
        "partition": state.partition,
        "next_number": state.next_number,
        "frozen": asdict(state.frozen) if state.frozen else None,
        "pools": [asdict(state.pools[name]) for name in sorted(state.pools)],
        "tokens": sorted([p, *mark] for p, mark in state.tokens.items()),
        "book": _dump_book(state.book),
        **({"kept_keys": state.kept_keys.rows()} if len(state.kept_keys) else {}),
        **_dump_moves(state),
    }
    jobs, nodes = dict(state.jobs), [(name, state.nodes[name]) for name in state.names if name]
    claims, reservations = dict(state.claims), dict(state.reservations)

    def written() -> bytes:
        records = {
            "jobs": dumps.of(state.partition, "jobs", ((j, jobs[j]) for j in sorted(jobs))),
            "nodes": dumps.of(state.partition, "nodes", nodes),
            "claims": [_plain(claims[j]) for j in sorted(claims)],
            "reservations": [_plain(reservations[j]) for j in sorted(reservations)],
        }
        return orjson.dumps(small | records, option=orjson.OPT_SORT_KEYS)

    return written


def load_schedule(data: bytes) -> ScheduleState:
    """Reads it back, an older format too, and builds the indexes. Raises BrokenInvariant on one that no step leads from."""
    raw = SCHEDULE_FORMATS.lifted(parse(data))
    state = ScheduleState(raw["partition"], next_number=raw["next_number"])
    state.frozen = Freeze(**raw["frozen"]) if raw["frozen"] else None
    for pool in raw["pools"]:
        state.pools[pool["name"]] = Pool(**(pool | {"name": PoolName(pool["name"])}))
    state.tokens = {p: (seq, ordinal) for p, seq, ordinal in raw["tokens"]}
    for node in raw["nodes"]:
        state.put_node(read_stored(Node, node), 0)
    _load_book(state.book, raw["book"])
    state.kept_keys = KeptKeys(raw.get("kept_keys", ""))
    _load_moves(state, raw)
    state.index_forgetting()
    for job in raw["jobs"]:
        state.restore_job(read_stored(Job, job))
    for claim in raw["claims"]:
        state.put_claim(read_stored(DevicesClaimed, claim))
    for held in raw["reservations"]:
        state.put_reservation(read_stored(StartReserved, held))
    state.book.marks.restore(raw["book"]["marks"])
    for name in state.book.pools():
        # A look lets those in whose retry may start; it comes again only for those that rest longer.
        state.book.lanes.of(name).wake(state.book.marks.looked_ms(name) or 0)
    return state


def _dump_moves(state: ScheduleState) -> dict[str, Any]:
    """Nothing for a partition that no pool ever left or reached, so that its state has the hash that it had before pools could move."""
    found: dict[str, Any] = {}
    if state.moved:
        found["moved"] = [[pool, *_moved_row(state.moved[pool])] for pool in sorted(state.moved)]
    if state.arriving:
        found["arriving"] = [[pool, a.move, a.from_partition, list(a.parts)] for pool, a in sorted(state.arriving.items())]
    if state.scheduler_tokens:
        found["scheduler_tokens"] = sorted([p, *mark] for p, mark in state.scheduler_tokens.items())
    return found


def _moved_row(m: MovedPool) -> list[Any]:
    named = [[[job_id, *m.jobs[job_id]] for job_id in sorted(m.jobs)], m.keys.rows(), sorted(m.public_keys)]
    return [m.to_partition, m.move, m.at_ms, *named, m.closed, m.returned, m.redirected]


def _load_moves(state: ScheduleState, raw: dict[str, Any]) -> None:
    for pool, to, move, at_ms, jobs, keys, public_keys, *flags in raw.get("moved", ()):
        speak = {job_id: tuple(nodes) for job_id, *nodes in jobs}
        state.moved[pool] = MovedPool(to, move, at_ms, speak, KeptKeys(keys), frozenset(public_keys), *flags)
    for pool, move, from_partition, parts in raw.get("arriving", ()):
        state.arriving[pool] = Arriving(move, from_partition, tuple(parts))
    state.scheduler_tokens = {p: (seq, ordinal) for p, seq, ordinal in raw.get("scheduler_tokens", ())}


def _dump_book(book: Book) -> dict[str, Any]:
    """Returns the part of the book that does not follow from the records: policies, past use, learned run times, moves, marks."""
    return {
        "policies": {str(pool): _plain(policy) for pool, policy in sorted(book.policies.items())},
        "usage": [(pool, team, resource, *map(_wide, track)) for pool, team, resource, *track in book.usage.rows()],
        "estimates": book.estimates.rows(),
        "moves_ms": book.moves_ms,
        "mix": _dump_mix(book.cluster.mix),
        "marks": book.marks.rows(),
        # Without any, the state has the hash that it had before there were bounds.
        **({"bounds": book.bounds.rows()} if book.bounds else {}),
    }


def _load_book(book: Book, raw: dict[str, Any]) -> None:
    for pool, policy in sorted(raw["policies"].items()):
        book.set_policy(pool, read_stored(SchedulingPolicy, policy), 0)
    book.usage.restore((pool, team, resource, *map(int, track)) for pool, team, resource, *track in raw["usage"])
    book.estimates = Estimates.from_rows(raw["estimates"])
    book.moves_ms = tuple(raw["moves_ms"])
    book.cluster.mix = _load_mix(raw["mix"])
    book.bounds.restore(raw.get("bounds", ()))


def _wide(number: int) -> int | str:
    """As text where JSON has no integer for it: bytes of memory x milliseconds of a day are beyond 64 bits for a single job."""
    return number if -(2**63) <= number < 2**63 else str(number)


def _dump_mix(mix: Mix) -> list[Any]:
    asked, counts, typical = mix.table()
    return [asked, [_usual_row(u, n) for u, n in counts], [_usual_row(u, n) for u, n in typical]]


def _usual_row(u: Usual, count: int) -> list[Any]:
    return [[u.types, u.ranks, u.milli, u.cpus_milli, u.memory_bytes], count]


def _load_mix(raw: list[Any]) -> Mix:
    asked, counts, typical = raw
    return Mix((asked, _usuals(counts), _usuals(typical)))


def _usuals(rows: list[Any]) -> tuple[tuple[Usual, int], ...]:
    return tuple((Usual(tuple(types), *numbers), count) for (types, *numbers), count in rows)


def _plain(record: Model) -> Any:
    # By way of JSON text: not-a-number and infinity are told from null only there.
    return orjson.loads(record.model_dump_json())
