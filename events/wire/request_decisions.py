"""Requests that a record of the scheduler's journal handled, and the decisions on each.

Holds: pure. A request's decisions begin with its token; one that came a second time, or went on to the partition of its pool, has none.
Reports between two requests have no token, and decide nothing that answers a request.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from trainhouse.events.model.base import Event
from trainhouse.events.model.decisions import TokenSeen
from trainhouse.events.model.handover import InputRedirected, PoolFence, PoolPart, RedirectedInput
from trainhouse.events.wire.journaled_input import JournaledInput

# Effects of other partitions' schedulers, whose tokens are numbered apart from those of the directory's.
_BY_SCHEDULER = frozenset(kind.event_type for kind in (RedirectedInput, PoolPart, PoolFence))


def request_decisions(inputs: Sequence[JournaledInput], decisions: Sequence[Event]) -> Iterator[tuple[str, range]]:
    """Yields the id of each request that was handled, with the places of the decisions on it."""
    tokens = {(d.by_scheduler, d.partition, d.seq, d.ordinal): n for n, d in enumerate(decisions) if isinstance(d, TokenSeen)}
    if not tokens:
        return
    passed_on = {d.offset for d in decisions if isinstance(d, InputRedirected)}
    begins = sorted(tokens.values())
    for item in inputs:
        order = item.order
        if order is None:
            continue
        begin = tokens.pop(
            (item.type in _BY_SCHEDULER, order.partition, order.seq, order.ordinal), None
        )  # the first is the one that counts
        if begin is None or item.offset in passed_on:
            continue
        after = bisect_right(begins, begin)
        yield item.event_id, range(begin, begins[after] if after < len(begins) else len(decisions))
