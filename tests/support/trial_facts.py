"""Facts of trials from the tuner's decisions, by the rows that the projections make of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainhouse.client.studies.trial_facts import trial_facts
from trainhouse.events import Event, EventId, envelope_of
from trainhouse.events.model.study_decisions import StudyDecision
from trainhouse.projections.record import Record
from trainhouse.projections.rows.studies.study_rows import rows
from trainhouse.projections.study_listing import fact_row
from trainhouse.scheduler.core.studies.stopping_what_if import FactKind, TrialFact


def facts_of(decisions: Iterable[Event]) -> list[TrialFact]:
    """Returns the facts of trials among decisions."""
    return trial_facts(fact_rows(decisions))


def fact_rows(decisions: Iterable[Event]) -> list[dict[str, Any]]:
    """Returns the same as rows, as the tables give them."""
    made = (
        row.values
        for each in decisions
        if isinstance(each, StudyDecision)
        for row in rows(envelope_of(each, id=EventId("x"), source="tests", now_ms=1), Record("t", 0, 0, 1, None, None))
        if row.table == "study_facts" and row.values["fact"] in list(FactKind)
    )
    return [fact_row(row | {"value": str(row["figures"][0]) if row["figures"] else ""}) for row in made]
