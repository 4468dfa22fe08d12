"""Decisions about trials, as rows of the tables or of the gateway, as the facts that early stopping is decided anew by. Pure."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.stopping_what_if import FactKind, TrialFact

if TYPE_CHECKING:
    from trainhouse.client.backend_protocol import Row


def trial_facts(rows: "Iterable[Row]") -> list[TrialFact]:
    """Returns the facts that rows of FACT_COLUMNS are."""
    return [
        TrialFact(
            row["number"],
            FactKind(row["fact"]),
            row["trial"],
            row["step"],
            float(row["value"]) if row["value"] else None,
            row["early"],
            TrialState(row["state"]) if row["state"] else TrialState.WAITING,
            float(row["device_s"]),
        )
        for row in rows
    ]
