"""Trials that a study knows from its start, as its sampler gets to know them. Pure.

Holds: their numbers are below 0, so that they come before the study's own and are none of them; they follow from the spec alone.
"""

from trainhouse.events import StudySpec, TrialState
from trainhouse.scheduler.core.studies.trial_record import ToldTrial


def known_from_start(spec: StudySpec) -> tuple[ToldTrial, ...]:
    """Returns the known trials of a spec, in their order."""
    first = spec.metrics[0].name
    return tuple(
        ToldTrial(
            number - len(spec.known),
            {name: each.values[name] for name in spec.space if name in each.values},
            TrialState.COMPLETE if each.stopped_at is None else TrialState.STOPPED,
            tuple(each.metrics[metric.name] for metric in spec.metrics),
            () if each.stopped_at is None else ((each.stopped_at, each.metrics[first]),),
        )
        for number, each in enumerate(spec.known)
    )
