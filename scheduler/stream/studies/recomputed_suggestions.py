"""Suggestions of a journal of studies, computed again from what was told: those of other versions of the samplers are counted.

Never: imports Optuna where no trial began.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainhouse.events import SamplerVersions, TrialStarted
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.scheduler.core.studies.study_state import TunerState, told

Found = tuple[str, Any, Any]


@dataclass(slots=True)
class RecomputedSuggestions:
    """Suggestions so far."""

    recomputed: int = 0
    other_versions: int = 0

    def differences(self, state: TunerState, record: JournalRecord) -> Iterator[Found]:
        """Values of a record's trials that the samplers do not suggest again. `state`: before the record."""
        started = [each for each in record.decisions if isinstance(each, TrialStarted)]
        for each in started:
            entry = state.study(each.project, each.study)
            if entry is None or each.told > entry.number:
                yield f"{each.job_id}.told", each.told, "a decision before the record"
                continue
            from trainhouse.scheduler.stream.studies.optuna_sampler import suggest

            found = suggest(entry.spec, told(entry, each.told), each.trial)
            if found.versions != each.versions or found.versions == SamplerVersions():
                self.other_versions += 1
                continue
            self.recomputed += 1
            if found.values != each.values:
                yield f"{each.job_id}.values", each.values, found.values
