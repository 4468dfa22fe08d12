"""Models in service, as the process of alerts looks after them: drift of new windows is measured, and a champion is asked back.

Holds: a window is measured once for the observations and the reference that it has, and again where more come or one is sent anew; all of
them count while the newest is at most 35 days old. A turn is bounded, and the next one goes on. A window that cannot be measured keeps up
no other, and is tried again once it changed; one that cannot be asked for, some minutes later. A rollback is asked for only while an alert
of a rule that rolls back is open for the champion of now, and only where its gate says so; its id is the champion's, so that it counts once
however often it is sent. The registry decides it. A ClickHouse that is away is asked again later.
Never: a statistic of its own: `measure` comes from outside.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog
from pydantic import ValidationError

from trainhouse.events.model.alert import AlertFired
from trainhouse.events.model.dataset_profile import FieldProfile
from trainhouse.events.model.ids import TRAINHOUSE, EventId
from trainhouse.events.model.model_gate import ModelGate, OnDrift
from trainhouse.events.model.model_key import model_key
from trainhouse.events.model.model_observations import LiveFieldFigures, LiveSide, ModelDriftMeasured, ObservedRows
from trainhouse.events.model.model_registry import ModelRollbackRequested
from trainhouse.events.runtime.turns import in_turn
from trainhouse.events.wire.envelope import Envelope, envelope_of
from trainhouse.events.wire.topics import MODEL_DRIFT, MODEL_REQUESTS
from trainhouse.projections.alerts.alert_case import SOURCE
from trainhouse.projections.alerts.errors import EndpointUnavailableError, RuleFailedError
from trainhouse.projections.alerts.query import Ask, moment
from trainhouse.projections.alerts.rules import Rule, SqlRule

EVERY_MS: Final = 15_000
MOST_TURN_S: Final = 1.0
"""After which no further window is begun in a turn, so that rules are not kept waiting."""
RETRY_MS: Final = 600_000
"""After which a window is tried again whose observations ClickHouse could not give."""
MOST_OBSERVATIONS: Final = 200
"""Observations of a window that are measured; the first ones by their event ids."""
MOST_REMEMBERED: Final = 10_000
MOST_OF_PROJECT: Final = 1_000
MOST_REASON_CHARS: Final = 1024

Measure = Callable[[ObservedRows, Sequence[ObservedRows]], tuple[LiveFieldFigures, ...]]
"""Figures of live predictions against a reference. Raises ImportError where the libraries of the statistics are not installed."""
Publish = Callable[[str, Sequence[Envelope]], None]
"""Publishes to a topic, all or none. Raises BusUnavailableError."""

_OF_VERSION = "project = {project:String} AND name = {name:String} AND version = {version:UInt32}"
PENDING_SQL: Final = f"""
SELECT w.project AS project, w.name AS name, w.version AS version, toUnixTimestamp64Milli(w.window_start) AS start_ms,
    toUnixTimestamp64Milli(w.window_end) AS end_ms, count() AS observations, toUnixTimestamp64Milli(max(w.at)) AS newest_ms,
    any(r.event_id) AS reference_id, any(r.source) AS reference, any(r.samples) AS reference_count
FROM (SELECT project, name, version, window_start, window_end, at FROM model_windows_rows FINAL WHERE notEmpty(fields)) AS w
INNER JOIN (SELECT project, name, version, event_id, source, samples FROM model_references_rows FINAL) AS r
    ON r.project = w.project AND r.name = w.name AND r.version = w.version
INNER JOIN (SELECT project, name, version FROM model_facts FINAL WHERE fact = 'registered') AS k
    ON k.project = w.project AND k.name = w.name AND k.version = w.version
LEFT JOIN (
    SELECT project, name, version, window_start, window_end, argMax(observations, at) AS measured, argMax(reference_id, at) AS against,
        max(at) AS measured_at
    FROM model_drift_rows GROUP BY project, name, version, window_start, window_end
) AS d ON d.project = w.project AND d.name = w.name AND d.version = w.version AND d.window_start = w.window_start
    AND d.window_end = w.window_end
GROUP BY project, name, version, start_ms, end_ms
HAVING max(w.at) > {{now:DateTime64(3, 'UTC')}} - INTERVAL 35 DAY
    AND (observations != any(d.measured) OR reference_id != any(d.against) OR max(w.at) > any(d.measured_at))
ORDER BY end_ms DESC, project, name, version, start_ms
LIMIT {MOST_OF_PROJECT} BY project LIMIT {MOST_REMEMBERED}
"""
WINDOW_SQL: Final = f"""
SELECT predictions AS count, sides, fields, profiles FROM model_windows_rows FINAL
WHERE {_OF_VERSION} AND toUnixTimestamp64Milli(window_start) = {{start:Int64}} AND toUnixTimestamp64Milli(window_end) = {{end:Int64}}
    AND notEmpty(fields)
ORDER BY event_id LIMIT {MOST_OBSERVATIONS}
"""
REFERENCE_SQL: Final = f"SELECT samples AS count, sides, fields, profiles FROM model_references_rows FINAL WHERE {_OF_VERSION}"
CHAMPION_SQL: Final = """
SELECT argMaxIf(version, number, fact IN ('promoted', 'rolled-back')) AS champion,
    maxIf(number, fact IN ('promoted', 'rolled-back')) AS decision, argMaxIf(gate, number, fact = 'gate') AS gate
FROM (SELECT version, number, fact, gate FROM model_facts FINAL WHERE project = {project:String} AND name = {name:String})
"""

log = structlog.get_logger(__name__)


class ModelWatch:
    """Drift and rollbacks of models; `turn` is called again and again with a clock's time. `steady_s`: a clock that is never set."""

    def __init__(
        self,
        ask: Ask,
        publish: Publish,
        measure: Measure | None,
        rules: Iterable[Rule],
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._publish, self._measure, self._steady_s = ask, publish, measure, steady_s
        self._rolling = frozenset(rule.name for rule in rules if isinstance(rule, SqlRule) and rule.rolls_back)
        self._measured: dict[tuple[Any, ...], int | None] = {}
        """Windows that are measured, or cannot be, and until when they are left alone; None: until they change."""
        self._left: deque[Mapping[str, Any]] = deque()
        self._asked_back: set[str] = set()
        self._last_ms = 0
        self._failing = ""

    def turn(self, now_ms: int, alerts: Sequence[AlertFired]) -> None:
        """Runs what is due. Blocks on ClickHouse and the brokers. Raises BusUnavailableError; then call it again."""
        due = not 0 <= now_ms - self._last_ms < EVERY_MS  # a clock that was set back makes it due, too
        if not due and not self._left:
            return
        try:
            if due:
                self._last_ms = now_ms
                self._ask_back(now_ms, [each for each in alerts if each.rule in self._rolling])
                self._find_windows(now_ms)
            self._measure_windows(now_ms)
        except EndpointUnavailableError:
            self._left.clear()
            return  # the rules, which ask it too, report it
        except RuleFailedError as error:
            self._left.clear()
            if str(error) != self._failing:
                log.error("models in service cannot be looked at; alerts go on", error=str(error))
            self._failing = str(error)
        else:
            self._failing = ""

    def _ask_back(self, now_ms: int, alerts: Sequence[AlertFired]) -> None:
        for alert in alerts:
            if not alert.labels.keys() >= {"project", "model", "version"}:
                continue  # it fired under a rule of before
            rows = self._ask(CHAMPION_SQL, {"project": alert.labels["project"], "name": alert.labels["model"]})
            request = rollback_of(alert, rows[0], now_ms) if rows else None
            if request is None or request.id in self._asked_back:
                continue
            self._publish(MODEL_REQUESTS, [request])
            self._asked_back.add(request.id)
            log.warning("a champion is asked back, as its gate says", model=request.subject, rule=alert.rule, summary=alert.summary)

    def _find_windows(self, now_ms: int) -> None:
        pending = self._ask(PENDING_SQL, {"now": moment(now_ms)}) if self._measure is not None else []
        self._left = deque(in_turn((row for row in pending if self._is_new(_state_of(row), now_ms)), lambda row: str(row["project"])))

    def _is_new(self, state: tuple[Any, ...], now_ms: int) -> bool:
        until_ms = self._measured.get(state, 0)
        return until_ms is not None and until_ms <= now_ms

    def _measure_windows(self, now_ms: int) -> None:
        """Measures one window at least, where any is left, and more while there is time."""
        until_s = self._steady_s() + MOST_TURN_S
        while self._left and self._measure is not None:
            row, until_ms = self._left[0], None
            try:
                measured = self._of_window(row, now_ms, self._measure)
            except ImportError as error:
                log.warning("drift of models is not measured: install trainhouse[evaluation] where alerts run", error=str(error))
                self._measure = None
                self._left.clear()
                return
            except EndpointUnavailableError:
                raise  # says nothing of the window
            except Exception as error:  # whatever a sender's histograms make a statistic do, other windows are measured
                model = model_key(row["project"], row["name"])
                log.error("a window cannot be measured; others are", model=model, error=repr(error), **_window(row))
                until_ms = now_ms + RETRY_MS if isinstance(error, RuleFailedError) else None
            else:
                self._publish(MODEL_DRIFT, [measured])
            self._remember(_state_of(row), until_ms)
            self._left.popleft()
            if self._steady_s() >= until_s:
                return

    def _of_window(self, row: Mapping[str, Any], now_ms: int, measure: Measure) -> Envelope:
        of_version = {"project": row["project"], "name": row["name"], "version": str(row["version"])}
        (reference,) = self._ask(REFERENCE_SQL, of_version) or [{"count": 0, "sides": [], "fields": [], "profiles": []}]
        parts = self._ask(WINDOW_SQL, of_version | {"start": str(row["start_ms"]), "end": str(row["end_ms"])})
        live = [observed_rows(part) for part in parts]
        return drift_event(row, sum(each.count for each in live), measure(observed_rows(reference), live), now_ms)

    def _remember(self, state: tuple[Any, ...], until_ms: int | None) -> None:
        """The tables have a measurement a moment after it was sent."""
        self._measured[state] = until_ms
        if len(self._measured) > MOST_REMEMBERED:
            del self._measured[next(iter(self._measured))]


def observed_rows(row: Mapping[str, Any]) -> ObservedRows:
    """Histograms of a row of windows or references. Raises ValidationError."""
    named = zip(row["sides"], row["fields"], row["profiles"], strict=True)
    return ObservedRows(int(row["count"]), {(LiveSide(side), name): FieldProfile.model_validate_json(text) for side, name, text in named})


def drift_event(row: Mapping[str, Any], count: int, fields: tuple[LiveFieldFigures, ...], now_ms: int) -> Envelope:
    """The measurement of a window, under an id that follows from what was measured."""
    event = ModelDriftMeasured(
        project=row["project"],
        name=row["name"],
        version=row["version"],
        window_start_ms=row["start_ms"],
        window_end_ms=row["end_ms"],
        observations=row["observations"],
        count=count,
        reference_id=EventId.parse(row["reference_id"]),
        reference=row["reference"],
        reference_count=row["reference_count"],
        fields=fields,
        at_ms=now_ms,
    )
    return envelope_of(event, id=f"drift:{_digest(*map(str, _state_of(row)))}", source=SOURCE, now_ms=now_ms)


def rollback_of(alert: AlertFired, champion: Mapping[str, Any], now_ms: int) -> Envelope | None:
    """The request that follows from an open alert and a row of CHAMPION_SQL; None: it is of another version, or the gate asks for none."""
    version = int(champion["champion"])
    if not version or alert.labels["version"] != str(version) or _on_drift(str(champion["gate"])) is not OnDrift.ROLLBACK:
        return None
    project, name = alert.labels["project"], alert.labels["model"]
    reason = f"alert {alert.rule}: {alert.summary}"[:MOST_REASON_CHARS]
    event = ModelRollbackRequested(project=project, name=name, champion=version, reason=reason, user=TRAINHOUSE)
    return envelope_of(event, id=f"rollback:{_digest(project, name)}:{version}:{champion['decision']}", source=SOURCE, now_ms=now_ms)


def _on_drift(gate: str) -> OnDrift:
    try:
        return ModelGate.model_validate_json(gate).on_drift if gate else OnDrift.ALERT
    except ValidationError:
        return OnDrift.ALERT  # of a newer program: only what is understood rolls back


def _state_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("project", "name", "version", "start_ms", "end_ms", "observations", "newest_ms", "reference_id"))


def _window(row: Mapping[str, Any]) -> dict[str, int]:
    return {"version": row["version"], "window_start_ms": row["start_ms"], "window_end_ms": row["end_ms"]}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
