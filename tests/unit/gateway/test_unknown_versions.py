"""Observations of versions that a model does not have: a bounded list, and a count of the rest."""

from typing import Any

import pytest

from tests.support.registry_requests import Registry
from trainhouse.gateway.models.service_routes import MOST_UNKNOWN, answer_of


@pytest.mark.parametrize(("observed", "listed", "more"), [(0, 0, 0), (20, 20, 0), (21, 20, 1), (5000, 20, 4980)])
def test_the_lowest_versions_are_listed_and_the_others_counted(observed: int, listed: int, more: int) -> None:
    registry = Registry()
    registry.register(1)
    parts: dict[str, list[dict[str, Any]]] = {part: [] for part in ("references", "drifted", "quality", "drift", "freshness", "alerts")}
    parts["observed"] = [{"version": number + 2, "refused": 3} for number in reversed(range(observed))]
    answer = answer_of(registry.model, None, [], parts)
    assert MOST_UNKNOWN == 20 and answer["unknown_more"] == more
    assert answer["unknown"] == [{"version": number + 2, "observations": 3} for number in range(listed)]
