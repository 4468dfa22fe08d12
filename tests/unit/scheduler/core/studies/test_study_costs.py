"""Budget of a study in money: which price counts, for which device-seconds, and what happens without one."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.study_requests import Tuner, study_spec
from tests.unit.scheduler.core.studies.test_study_machine import of
from trainhouse.events import JobSpec, JobState, StudyChanged, StudyPriced, StudyState, StudyStatus, TrialBegan, TrialEnded
from trainhouse.events.model.policy import Prices
from trainhouse.scheduler.core.studies.trial_costs import price_per_hour

HOUR_S = 3600.0


def priced(**budget: Any) -> Tuner:
    """A study in money, whose devices cost 2 USD an hour, with two trials that run."""
    tuner = Tuner()
    tuner.create(budget={"cost": 10.0} | budget)
    tuner.price(2.0)
    tuner.fill()
    return tuner


def test_no_trial_begins_before_the_price_is_known() -> None:
    tuner = Tuner()
    tuner.create(budget={"cost": 10.0})
    assert tuner.fill() == 0
    priced = of(StudyPriced, tuner.price(2.0))
    assert (priced.price, priced.currency, priced.pool, priced.policy_version) == (2.0, "USD", "default", 1)
    assert tuner.fill() == 2


def test_a_study_whose_devices_have_no_price_ends_with_the_way_out() -> None:
    tuner = Tuner()
    tuner.create(budget={"cost": 10.0, "trials": 5})
    changed = [each for each in tuner.price(None) if isinstance(each, StudyChanged)]
    assert [each.state for each in changed] == [StudyState.DRAINING, StudyState.ENDED] and tuner.has_ended()
    assert "names none for cpu devices: apply one with `prices`" in changed[-1].reason
    other = Tuner()
    other.create()
    assert other.price(None) == [] and other.fill() == 2, "one without a budget in money needs none"


def test_what_runs_counts_and_nothing_begins_once_the_budget_is_reached() -> None:
    tuner = priced()
    tuner.job(0, JobState.RUNNING, device_s=3 * HOUR_S)
    assert not tuner.cancelled()
    tuner.job(1, JobState.RUNNING, device_s=1 * HOUR_S)
    decided = tuner.job(1, JobState.RUNNING, device_s=2 * HOUR_S)
    assert "its trials cost 10 of 10 USD" in of(StudyChanged, decided).reason
    assert len(tuner.cancelled()) == 2 and tuner.fill() == 0
    tuner.job(0, JobState.CANCELLED, device_s=3.5 * HOUR_S)
    status = of(StudyStatus, [tuner.job(1, JobState.CANCELLED, device_s=2.0 * HOUR_S)[-2]])
    assert tuner.has_ended() and (status.cost, status.currency, status.price) == (11.0, "USD", 2.0)


def test_a_new_price_counts_from_when_it_is_known_and_what_was_spent_stays() -> None:
    tuner = priced(cost=100.0)
    tuner.job(0, JobState.RUNNING, device_s=1 * HOUR_S)
    assert of(StudyPriced, tuner.price(4.0, version=2)).price == 4.0
    assert tuner.price(1.0, version=1) == [], "an older policy"
    assert tuner.price(4.0, version=3) == [], "the same price"
    assert tuner.price(None, version=4) == [], "the last price that a policy named counts"
    assert of(TrialBegan, tuner.job(0, JobState.RUNNING, device_s=2 * HOUR_S)).cost == 6.0
    tuner.log(0, 1, 0.5)
    assert of(TrialEnded, tuner.job(0, JobState.SUCCEEDED, device_s=1.5 * HOUR_S)).cost == 6.0, "device-seconds never go back"
    again = tuner.machine.load(tuner.machine.dump(tuner.state))
    assert again.studies == tuner.state.studies


def test_another_currency_ends_a_study_in_money_and_no_other() -> None:
    tuner = priced()
    reason = of(StudyChanged, tuner.price(2.0, version=2, currency="EUR")).reason
    assert reason == "budget.cost is in USD, and the policy of pool default now names prices in EUR"
    assert len(tuner.cancelled()) == 2
    other = Tuner()
    other.create()
    other.price(2.0)
    assert other.price(3.0, version=2, currency="EUR") == [] and other.study.price is not None and other.study.price.currency == "USD"


def test_without_a_price_nothing_has_a_cost() -> None:
    tuner = Tuner()
    tuner.create()
    tuner.fill()
    ended = tuner.succeed(0, 0.5)
    assert of(TrialEnded, ended).cost is None and of(StudyStatus, ended).cost is None
    assert "cost" not in of(TrialEnded, ended).model_dump_json()


@pytest.mark.parametrize("cost", [0, -1, float("nan"), float("inf")])
def test_a_budget_is_a_number_above_nothing(cost: float) -> None:
    with pytest.raises(ValidationError, match=r"budget\.cost"):
        study_spec(budget={"cost": cost})


PRICES = Prices.model_validate({"devices": {"h100": {"reserved": 3.0, "spot": 1.0}, "t4": {"reserved": 0.5, "spot": 0.7}}})
JOB: dict[str, Any] = {"name": "j", "user": "ada", "runtime": {"command": ["true"]}}


@pytest.mark.parametrize(
    ("job", "price"),
    [
        ({"resources": {"device_type": "h100"}}, 3.0),
        ({"resources": {"device_type": "t4"}}, 0.7),
        ({"resources": {"device_type": "t4"}, "placement": {"spot": False}}, 0.5),
        ({}, 3.0),
        ({"resources": {"device_type": "cpu"}}, None),
    ],
)
def test_the_price_is_the_dearest_that_the_devices_may_have(job: dict[str, Any], price: float | None) -> None:
    assert price_per_hour(PRICES, JobSpec.model_validate(JOB | job)) == price


def test_a_gang_of_several_kinds_has_the_mean_of_its_ranks() -> None:
    roles = [{"name": "a", "ranks": 1}, {"name": "b", "ranks": 3, "resources": {"device_type": "cpu"}}]
    job = JobSpec.model_validate(JOB | {"resources": {"device_type": "h100"}, "gang": {"ranks": 4, "roles": roles}})
    prices = Prices.model_validate({"devices": {"h100": {"reserved": 3.0}, "any": {"reserved": 1.0}}})
    assert price_per_hour(prices, job) == 1.5
    assert price_per_hour(PRICES, job) is None
