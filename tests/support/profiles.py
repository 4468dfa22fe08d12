"""How much of a random test runs: all of it, or what `make test` has time for.

Holds: `pytest` alone runs all; `pytest --hypothesis-profile=quick` runs a part of every random test, and leaves none out.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

FULL = "full"
QUICK = "quick"
# Hypothesis makes so many of its own accord, where a test names no number.
USUAL = 100
# Of so many examples the quick profile makes one.
PART = 5
LEAST = 10


def register() -> None:
    """Makes both known to Hypothesis and loads the full one, which the option of the command line replaces."""
    # How long an example takes says something of the machine, not of the law.
    full = settings(deadline=None, max_examples=USUAL, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(FULL, full)
    settings.register_profile(QUICK, full, max_examples=_part(USUAL))
    settings.load_profile(FULL)


def examples(full: int) -> int:
    """How many examples or seeds a test makes that makes `full` of them in the full profile."""
    return _part(full) if settings.get_current_profile_name() == QUICK else full


def _part(full: int) -> int:
    return min(full, max(LEAST, full // PART))
