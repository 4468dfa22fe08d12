"""What differs between two policies."""

from trainhouse.events.model.policy import Order, SchedulingPolicy, Team
from trainhouse.scheduler.policies import FieldChange, diff


def test_equal_policies_do_not_differ_and_the_order_of_teams_does_not_count() -> None:
    a, b = Team(name="a"), Team(name="b", limit={"h100": 2, "any": 3})
    one = SchedulingPolicy(teams=(a, b))
    assert diff(one, SchedulingPolicy(teams=(b.model_copy(update={"limit": {"any": 3, "h100": 2}}), a))) == []


def test_changed_added_and_removed_fields_are_told() -> None:
    old = SchedulingPolicy(order=Order.SUBMIT, teams=(Team(name="a", limit={"any": 8}), Team(name="b")))
    new = SchedulingPolicy(order=Order.FAIR, teams=(Team(name="a", weight=2.0, limit={"h100": 4}),))
    assert diff(old, new) == [
        FieldChange("order", "submit", "fair"),
        FieldChange("teams.a.limit.any", 8, None),
        FieldChange("teams.a.limit.h100", None, 4),
        FieldChange("teams.a.weight", 1.0, 2.0),
        FieldChange("teams.b.lends", True, None),
        FieldChange("teams.b.weight", 1.0, None),
    ]
