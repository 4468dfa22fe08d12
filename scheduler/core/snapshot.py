"""States as canonical bytes, for snapshots and their hashes.

Holds: equal states have equal bytes, whatever the order in which their tables were filled; load(dump(s)) decides as s does.
"""

from dataclasses import asdict
from typing import Any, Final

import orjson

from trainhouse.events import Model, PoolName
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.records import Job, Node
from trainhouse.scheduler.core.state import Freeze, Pool, ScheduleState

FORMAT: Final = 1


def dump_schedule(state: ScheduleState) -> bytes:
    """JSON with sorted keys."""
    return orjson.dumps(
        {
            "format": FORMAT,
            "partition": state.partition,
            "next_number": state.next_number,
            "frozen": asdict(state.frozen) if state.frozen else None,
            "pools": [asdict(state.pools[name]) for name in sorted(state.pools)],
            "tokens": sorted([p, *mark] for p, mark in state.tokens.items()),
            "jobs": [_plain(state.jobs[j]) for j in sorted(state.jobs)],
            "nodes": [_plain(state.nodes[n]) for n in sorted(state.nodes)],
        },
        option=orjson.OPT_SORT_KEYS,
    )


def load_schedule(data: bytes) -> ScheduleState:
    """Reads it back and builds the indexes. Raises BrokenInvariant on another format."""
    raw = parse(data, FORMAT)
    state = ScheduleState(raw["partition"], next_number=raw["next_number"])
    state.frozen = Freeze(**raw["frozen"]) if raw["frozen"] else None
    for pool in raw["pools"]:
        state.pools[pool["name"]] = Pool(PoolName(pool["name"]), pool["created"], pool["grown_at_ms"])
    state.tokens = {p: (seq, ordinal) for p, seq, ordinal in raw["tokens"]}
    for job in raw["jobs"]:
        state.put_job(Job.model_validate(job))
    for node in raw["nodes"]:
        state.put_node(Node.model_validate(node))
    return state


def parse(data: bytes, expected: int) -> dict[str, Any]:
    """The JSON object of a snapshot in the expected format. Raises BrokenInvariant."""
    try:
        raw = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BrokenInvariant(f"the snapshot is no JSON: {error}; remove it, and the journal is read from its beginning") from error
    if not isinstance(raw, dict) or raw.get("format") != expected:
        raise BrokenInvariant(f"the snapshot has another format than {expected}; remove it, and the journal is read from its beginning")
    return raw


def _plain(record: Model) -> Any:
    # By way of JSON text: not-a-number and infinity are told from null only there.
    return orjson.loads(record.model_dump_json())
