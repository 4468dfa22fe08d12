"""Gangs in a spec: what fits together is read, what does not is refused with what to change; old specs keep their hashes."""

from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from tests.support.core_world import spec
from trainhouse.events import Gang, JobSpec

LEARNER: dict[str, Any] = {"name": "learner", "ranks": 2}
ACTOR: dict[str, Any] = {"name": "actor", "ranks": 4, "resources": {"device_type": "cpu"}, "command": ["python", "act.py"]}


def test_roles_together_are_the_gang() -> None:
    gang = Gang.model_validate({"ranks": 6, "roles": [LEARNER, ACTOR], "require": "rack", "prefer": "nvlink", "group_ranks": 2})
    assert [r.ranks for r in gang.roles] == [2, 4]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"ranks": 5, "roles": [LEARNER, ACTOR]}, "roles have 6 ranks together, but the gang has ranks = 5"),
        ({"ranks": 4, "roles": [LEARNER, LEARNER]}, "learner is named twice"),
        ({"ranks": 2, "min_ranks": 3}, "min_ranks = 3 is more than ranks = 2"),
        ({"ranks": 6, "min_ranks": 2, "roles": [LEARNER, ACTOR]}, "min_ranks and roles exclude each other"),
        ({"ranks": 6, "group_ranks": 4}, "group_ranks = 4 does not divide ranks = 6"),
        ({"ranks": 8, "min_ranks": 2, "group_ranks": 4}, "group_ranks = 4 does not divide min_ranks = 2"),
        ({"ranks": 6, "roles": [LEARNER, ACTOR], "group_ranks": 3}, "group_ranks = 3 does not divide role learner = 2"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_words(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Gang.model_validate(fields)


def test_gangs_never_share_a_device() -> None:
    assert spec(resources={"device_share": 250}).resources.device_share == 250
    assert spec(ranks=2, resources={"device_share": 1000}).gang.ranks == 2
    with pytest.raises(ValidationError, match="device_share = 250 is for a job of one rank; this gang has 2"):
        spec(ranks=2, resources={"device_share": 250})
    shared = LEARNER | {"resources": {"device_share": 10}}
    with pytest.raises(ValidationError, match="learner has a device_share"):
        JobSpec.model_validate({"runtime": {"command": ["x"]}, "gang": {"ranks": 2, "roles": [shared]}})


def test_a_spec_that_says_nothing_of_later_fields_has_the_hash_that_it_always_had() -> None:
    # A recorded spec has the default of its time in words: 1,800 s then, 600 s now.
    recorded = {"max_interval_s": 1800.0}
    plain = spec(name="gpt", ranks=2, device_type="H200", env={"A": "b"}, checkpoint=recorded)
    assert plain.sha256() == "c5e97951d31845d19f269119b90676e86eaff2cb7980bd441b1a07d033c0ae99"  # pragma: allowlist secret
    told = orjson.loads(plain.canonical_json())
    assert told["gang"] == {"ranks": 2} and "placement" not in told and "device_share" not in told["resources"]
    assert (
        len(
            {
                plain.sha256(),
                spec(name="gpt", ranks=2, device_type="H200", env={"A": "b"}, checkpoint=recorded, placement={"spot": False}).sha256(),
            }
        )
        == 2
    )
