"""A rule tried on the past: when it would have fired and resolved, by the same engine under a virtual clock.

Holds: a query is asked about the moments at which it would have been asked live (or every `step_ms`); verdicts come in their order.
Its limit: tables keep what is true in the end. Rows that were late then are there now, and what is older than its table's TTL is gone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from trainhouse.events.model.alert import AlertEvent, AlertFired
from trainhouse.projections.alerts.driver import answer, attempts_over
from trainhouse.projections.alerts.engine import Engine
from trainhouse.projections.alerts.query import Ask, moment
from trainhouse.projections.alerts.rules import Rule, SqlRule, VerdictRule
from trainhouse.projections.alerts.verdict_cases import Attempt

AT_ONCE = 2
CHUNK = 64
# As the process looks: verdicts every second, what is over four times a minute.
TURN_MS, SLOW_TURN_MS = 1000, 15_000
_VERDICTS = """
SELECT * EXCEPT (at, since, failed_at, deadline_at), toUnixTimestamp64Milli(at) AS at
FROM (SELECT * FROM verdicts WHERE at > {since:DateTime64(3, 'UTC')} AND at <= {until:DateTime64(3, 'UTC')})
ORDER BY at, event_id
"""

Progress = Callable[[float], None]
"""Is told the share that is done."""


@dataclass(frozen=True)
class Occurrence:
    """One alert that would have been. `resolved_ms` None: it still held at the end."""

    fired: AlertFired
    resolved_ms: int | None


def backtest(
    rule: Rule, ask: Ask, since_ms: int, until_ms: int, step_ms: int | None = None, progress: Progress | None = None
) -> list[Occurrence]:
    """Returns the rule's alerts within [since, until), oldest first. Blocks. Raises EndpointUnavailableError or RuleFailedError."""
    say = progress or (lambda _: None)
    if isinstance(rule, SqlRule):
        events = _by_sql(rule, ask, since_ms, until_ms, step_ms or rule.every_s * 1000, say)
    else:
        events = _by_verdicts(rule, ask, since_ms, until_ms)
    found: dict[tuple[str, int], Occurrence] = {}
    for event in events:
        name = (event.key, event.since_ms)
        if isinstance(event, AlertFired):
            found[name] = Occurrence(event, None)
        else:
            found[name] = Occurrence(found[name].fired, event.at_ms)
    say(1.0)
    return sorted(
        (o for o in found.values() if o.resolved_ms is None or o.resolved_ms >= since_ms), key=lambda o: (o.fired.at_ms, o.fired.key)
    )


def moments(rule: SqlRule, since_ms: int, until_ms: int, step_ms: int) -> range:
    """The moments that are asked about: from so long before that what held already is known."""
    first_ms = since_ms - round(rule.for_s * 1000)
    return range(first_ms - first_ms % step_ms, until_ms, step_ms)


def _by_sql(rule: SqlRule, ask: Ask, since_ms: int, until_ms: int, step_ms: int, say: Progress) -> Iterator[AlertEvent]:
    engine = Engine([rule])
    asked = moments(rule, since_ms, until_ms, step_ms)
    waiting = iter(asked)
    done = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while chunk := list(islice(waiting, CHUNK)):
            for at_ms, rows in zip(chunk, pool.map(lambda at: answer(rule, ask, at), chunk), strict=True):
                yield from engine.rows(rule.name, rows, at_ms, step_ms)
            done += len(chunk)
            say(done / len(asked))


def _by_verdicts(rule: VerdictRule, ask: Ask, since_ms: int, until_ms: int) -> Iterator[AlertEvent]:
    begin_ms = since_ms - round((rule.resolve_after_s + rule.for_s) * 1000)
    rows = ask(_VERDICTS, {"since": moment(max(0, begin_ms)), "until": moment(until_ms)})
    over = attempts_over(ask, _attempts(rows), until_ms)
    yield from _play(Engine([rule]), rows, over, until_ms)


def _play(engine: Engine, rows: Sequence[dict[str, Any]], over: Mapping[Attempt, int], until_ms: int) -> Iterator[AlertEvent]:
    index = 0
    at_ms = 0
    while index < len(rows) or engine.busy:
        due_ms = rows[index]["at"] if index < len(rows) else until_ms
        next_ms = -(-due_ms // TURN_MS) * TURN_MS
        if engine.busy:
            next_ms = min(next_ms, at_ms - at_ms % SLOW_TURN_MS + SLOW_TURN_MS)
        at_ms = next_ms
        if at_ms > until_ms:
            return
        while index < len(rows) and rows[index]["at"] <= at_ms:
            engine.on_verdict(rows[index])
            index += 1
        yield from engine.tick(at_ms, {attempt: end_ms for attempt, end_ms in over.items() if end_ms <= at_ms})


def _attempts(rows: Sequence[dict[str, Any]]) -> set[Attempt]:
    return {(row["job_id"], row["epoch"]) for row in rows if row["job_id"] and row["epoch"] is not None}
