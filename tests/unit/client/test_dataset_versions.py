"""Versions of datasets as a client reads them from their topic, and the answer to a request to publish one."""

import pytest

from tests.support.dataset_versions import publish, version
from trainhouse.client.dataset_versions import DatasetVersions
from trainhouse.events import (
    DatasetGranted,
    DatasetGrantRevoked,
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    GrantDataset,
)
from trainhouse.events.model.dataset_grant import GrantKey
from trainhouse.events.model.version_names import DatasetNameError

ONE, TWO = version(), version(licence="MIT")


def published(of: object, semver: str | None = None) -> DatasetVersionPublished:
    return DatasetVersionPublished.model_validate({"version": of, "semver": semver, "created_by": "ada", "published_at_ms": 1})


def test_versions_are_found_by_hash_and_by_tag_once_they_are_there() -> None:
    versions = DatasetVersions.of([published(ONE, "1.0.0"), published(ONE, "1.0.1"), published(TWO)])
    found = versions.find("speech@1.0.1")
    assert found is not None and found.version == ONE and found.tags == ["1.0.0", "1.0.1"] and found is versions.find(str(ONE.name))
    assert versions.find(str(TWO.name)) is not None and versions.find("speech@2.0.0") is None and versions.find("noise@1.0.0") is None
    with pytest.raises(DatasetNameError):
        versions.find("speech")


def test_what_is_asked_for_may_be_so_already() -> None:
    versions = DatasetVersions.of([published(ONE, "1.0.0")])
    assert versions.has(publish(ONE, "1.0.0")) and versions.has(publish(ONE))
    assert not versions.has(publish(ONE, "1.0.1")) and not versions.has(publish(TWO))


def test_a_deprecated_version_says_why_and_is_never_so_already() -> None:
    gone = DatasetVersionDeprecated(dataset="speech", sha256=ONE.sha256, user="bo", reason="wrong", deprecated_at_ms=2)
    later = gone.model_copy(update={"reason": "later"})
    versions = DatasetVersions.of([gone, published(ONE, "1.0.0"), gone, later])
    found = versions.find("speech@1.0.0")
    assert found is not None and found.deprecated is not None and found.deprecated.reason == "wrong"
    assert not versions.has(publish(ONE, "1.0.0"))


def test_versions_before_another_are_those_of_its_dataset_and_a_deprecated_one_is_no_predecessor() -> None:
    three, other = version(purposes=("teaching",)), version("noise")
    said = [published(ONE), published(other), published(TWO), published(three), published(ONE, "1.0.0")]
    gone = DatasetVersionDeprecated(dataset="speech", sha256=TWO.sha256, user="bo", reason="wrong", deprecated_at_ms=2)
    versions = DatasetVersions.of([*said, gone])
    assert [v.version for v in versions.before(three.name)] == [TWO, ONE] and versions.before(ONE.name) == []
    found = versions.predecessor(three.name)
    assert found is not None and found.version == ONE and versions.predecessor(ONE.name) is None


def test_grants_hold_until_they_are_revoked_and_are_named_by_dataset_or_version() -> None:
    named = {"dataset": "speech", "sha256": ONE.sha256, "owner": "default", "project": "vision", "purpose": "research"}
    given = DatasetGranted.model_validate(named | {"number": 1, "granted_at_ms": 1})
    of_all = given.model_copy(update={"sha256": None, "number": 3})
    over = DatasetGrantRevoked.model_validate(named | {"user": "bo", "number": 2, "revoked_at_ms": 2})
    asked = GrantDataset(dataset="speech", sha256=ONE.sha256, project="vision", purpose="research")
    key = GrantKey.of(asked)

    held = DatasetVersions.of([published(ONE, "1.0.0"), given])
    assert held.has_grant(asked) and not held.has_grant(asked.model_copy(update={"sha256": None}))
    assert held.grants.covers(key) and held.grants.revocation(key) is None
    ended = DatasetVersions.of([published(ONE), given, over]).grants
    assert not ended.covers(key) and ended.revocation(key) == over
    assert DatasetVersions.of([published(ONE), given, over, of_all]).grants.covers(key), "one of all versions covers each"
    again = given.model_copy(update={"number": 4})
    assert DatasetVersions.of([published(ONE), given, over, again]).has_grant(asked), "it may be given again"
    assert not DatasetVersions.of([published(ONE), given, over, given]).has_grant(asked), "an older change does not count"

    assert held.grantable("speech") == ("speech", None) and held.grantable("speech@1.0.0") == ("speech", ONE.sha256)
    assert held.grantable(str(ONE.name)) == ("speech", ONE.sha256)
    assert held.grantable("noise") is None and held.grantable("speech@2.0.0") is None
    for wrong in ("sp eech", "speech@", ""):
        with pytest.raises(DatasetNameError):
            held.grantable(wrong)
