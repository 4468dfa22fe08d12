"""Suggestions by Optuna's samplers as a pure function.

Holds: the same spec, told trials and number give the same values at the same versions of Optuna and NumPy, in any process, at any moment,
however often. Each call makes a study in memory and a sampler anew, whose seed follows from the spec's and the trial's number.
Never: raises for what a sampler does; the suggestion's `failure` has it. Imports Optuna before the first suggestion, or torch where the
sampler is not `gp`.

A trial that was stopped early is PRUNED with its curve for TPE, which ranks such trials by how far they came; the other samplers know only
complete trials, so it is one with its last value.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock
from typing import Final

import numpy as np

from trainhouse.events.model.study import SamplerName, SamplerVersions, StudySpec
from trainhouse.events.model.study_space import Value
from trainhouse.events.model.study_values import exists
from trainhouse.scheduler.core.studies.trial_record import ToldTrial
from trainhouse.scheduler.stream.studies.grid_points import grid_values
from trainhouse.scheduler.stream.studies.parameter_values import internal, suggested
from trainhouse.scheduler.stream.studies.suggestion import Suggestion

# Warning filters and torch's threads are the process's: one suggestion at a time changes them.
_ONE_AT_A_TIME: Final = Lock()


def suggest(spec: StudySpec, told: Sequence[ToldTrial], number: int) -> Suggestion:
    """Returns the values of trial `number` of a study of which `told` is known, in journal order."""
    try:
        import optuna
    except ImportError as error:
        return Suggestion(failure=f'samplers need Optuna: pip install "trainhouse[studies]" ({error})')
    versions = SamplerVersions(optuna=optuna.__version__, numpy=np.__version__)
    try:
        named = spec.enqueue[number] if number < len(spec.enqueue) else {}
        if spec.sampler.name is SamplerName.GRID:
            values = grid_values(spec, number)
            return Suggestion(values or {}, exhausted=values is None, versions=versions)
        with _ONE_AT_A_TIME, _undisturbed(spec):
            return Suggestion(_sampled(spec, told, number, named), versions=versions)
    except Exception as error:
        return Suggestion(versions=versions, failure=f"sampler {spec.sampler.name}: {type(error).__name__}: {error}")


def sampler_seed(seed: int, number: int) -> int:
    """Returns the seed of a trial's sampler."""
    return int.from_bytes(sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


@contextmanager
def _undisturbed(spec: StudySpec) -> Iterator[None]:
    """Keeps settings of the process away from a suggestion: warnings that are errors, NumPy's traps, torch's number of threads."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if spec.sampler.name is not SamplerName.GP:
            yield
            return
        import torch

        # Sums of several threads are added up in another order, so they would differ from machine to machine.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _sampled(spec: StudySpec, told: Sequence[ToldTrial], number: int, named: Mapping[str, Value]) -> dict[str, Value]:
    from trainhouse.scheduler.stream.studies.sampler_studies import study_for

    study = study_for(spec, told, sampler_seed(spec.seed, number), number)
    if named:
        study.enqueue_trial({name: internal(spec.space[name], value) for name, value in named.items()})
    trial = study.ask()
    values: dict[str, Value] = {}
    for name, parameter in spec.space.items():
        if exists(parameter, values):
            values[name] = suggested(trial, name, parameter)
    return values
