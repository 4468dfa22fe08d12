"""Grants of datasets as their topic has them: of changes to one grant, the one with the highest number counts."""

from itertools import permutations

from trainhouse.events import DatasetGranted, DatasetGrantRevoked
from trainhouse.events.model.dataset_grant import GrantKey, GrantTable

KEY = GrantKey("speech", "", "lm", "research")


def granted(number: int, project: str = "lm") -> DatasetGranted:
    return DatasetGranted(dataset="speech", owner="audio", project=project, purpose="research", number=number, granted_at_ms=number)


def revoked(number: int) -> DatasetGrantRevoked:
    return DatasetGrantRevoked(dataset="speech", owner="audio", project="lm", purpose="research", number=number, revoked_at_ms=number)


def test_a_grant_that_comes_after_its_revocation_but_is_older_gives_no_leave() -> None:
    table = GrantTable.of([granted(1), revoked(2), granted(1)])
    assert not table.covers(KEY) and table.revocation(KEY) == revoked(2)
    assert GrantTable.of([granted(3), revoked(2)]).covers(KEY)


def test_in_any_order_the_newest_change_of_each_grant_counts() -> None:
    for order in permutations([granted(1), revoked(2), granted(3), granted(4, "tts"), revoked(5)]):
        table = GrantTable.of(order)
        assert not table.covers(KEY) and table.covers(GrantKey("speech", "", "tts", "research"))
        assert table.revocation(KEY) == revoked(5)
