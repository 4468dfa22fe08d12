"""Help for tests of confined ranks: an attempt below an agent's folder, and the confinement that an agent would give it."""

import sys
from dataclasses import replace

from tests.integration.launcher_support import Attempt
from trainhouse.workers.confinement.interpreters import own, shown_for
from trainhouse.workers.confinement.layers import examine
from trainhouse.workers.confinement.plan import Confinement, Kind, Place, in_order, scratch_places


def confinement_of(attempt: Attempt, **changes: object) -> Confinement:
    """Everything that this machine gives."""
    found = examine(sys.executable)
    folder = attempt.paths.folder
    for rank in range(attempt.ranks):
        (attempt.paths.rank(rank).folder / "own").mkdir(parents=True, exist_ok=True)
    writable = [attempt.paths.code, *(attempt.paths.rank(r).own for r in range(attempt.ranks))]
    places = [
        *scratch_places(),
        *(Place(p, Kind.READ_ONLY) for p in shown_for(sys.executable, trusted=True)),
        *(Place(p, Kind.READ_ONLY) for p in own()),
        Place(str(folder), Kind.READ_ONLY),
        *(Place(str(p), Kind.WRITABLE) for p in writable),
    ]
    return replace(found.confinement(in_order(places)), **changes)  # type: ignore[arg-type]
