"""Trials of earlier studies, and rows of a query, that a new study knows from its start.

Holds: what does not fit is named and left out; another metric or direction, and an origin of which nothing fits, refuse the whole. What is
taken stands in the study's spec.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trainhouse.cli.shared import output
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.studies.study_file import WrittenStudy
from trainhouse.events.model.known_trials import TakenTrials, metrics_fault, taken_of_rows, taken_of_study

if TYPE_CHECKING:
    from trainhouse.client.studies.study_reads import StudyReads
    from trainhouse.events import StudySpec
    from trainhouse.events.model.known_trials import KnownTrial

_MOST_SHOWN: Final = 5


def with_known(written: WrittenStudy, studies: list[str], query: str | None) -> WrittenStudy:
    """A study with the trials of earlier ones of its project, and with the rows of a query. Blocks. Raises CliError, UnknownStudyError."""
    from trainhouse.client.studies.study_reads import study_reads

    if not studies and query is None:
        return written
    reads = study_reads()
    spec, names = written.spec, [each.name for each in written.spec.metrics]
    known = list(spec.known)
    for study in dict.fromkeys(studies):
        known += _reported(f"study {study}", _of_study(reads, written, study)).known
    if query is not None:
        known += _reported("the query", taken_of_rows(spec.space, names, reads.query(query))).known
    return replace(written, spec=_valid(written, known))


def _of_study(reads: "StudyReads", written: WrittenStudy, study: str) -> TakenTrials:
    spec = written.spec
    found = reads.study(written.project, study)
    fault = metrics_fault([(each.name, each.mode.value) for each in spec.metrics], found)
    if fault:
        raise CliError(f"study {study} cannot be taken: {fault}; nothing was sent", Exit.USAGE)
    return taken_of_study(spec.space, [each.name for each in spec.metrics], study, reads.trials(written.project, study))


def _reported(origin: str, taken: TakenTrials) -> TakenTrials:
    """Prints what was taken. Raises CliError where that is nothing."""
    shown = "".join(f"\n  {each}" for each in taken.left_out[:_MOST_SHOWN])
    more = f"\n  and {len(taken.left_out) - _MOST_SHOWN} more" if len(taken.left_out) > _MOST_SHOWN else ""
    if not taken.known:
        raise CliError(f"nothing of {origin} can be taken; nothing was sent{shown or ': it has no trial with a value'}{more}", Exit.USAGE)
    left_out = f"; {len(taken.left_out)} left out:{shown}{more}" if taken.left_out else ""
    output.remark(f"{len(taken.known)} trials of {origin} are known to the sampler{left_out}")
    return taken


def _valid(written: WrittenStudy, known: "list[KnownTrial]") -> "StudySpec":
    from pydantic import ValidationError

    from trainhouse.events import StudySpec
    from trainhouse.events.wire.validation_messages import explain_validation

    try:
        return StudySpec.model_validate({**{name: getattr(written.spec, name) for name in written.spec.model_fields_set}, "known": known})
    except ValidationError as error:
        raise CliError(f"{explain_validation(error, StudySpec)}\nnothing was sent", Exit.USAGE) from error
