"""What `make audit` says of a report of advisories."""

from typing import Any

from trainhouse.deploy.advisories import FOUND, NOT_ASKED, read

ADVISORY = {"id": "PYSEC-2099-1", "aliases": ["CVE-2099-1"], "fix_versions": ["2.0"], "description": "reads any file"}


def report(*packages: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(packages)}


def test_a_package_without_an_advisory_passes() -> None:
    result = read(report({"name": "a", "version": "1.0", "vulns": []}), {})
    assert result.exit_code == 0
    assert result.lines() == ["1 packages checked, 0 advisories"]


def test_an_advisory_fails_and_names_the_version_that_mends_it() -> None:
    result = read(report({"name": "a", "version": "1.0", "vulns": [ADVISORY]}), {})
    assert result.exit_code == FOUND
    assert "a 1.0: PYSEC-2099-1, mended in 2.0" in result.lines()


def test_a_waived_advisory_passes_with_its_reason_also_by_an_alias() -> None:
    result = read(report({"name": "a", "version": "1.0", "vulns": [ADVISORY]}), {"CVE-2099-1": "that function is never called"})
    assert result.exit_code == 0
    assert "waived: that function is never called" in result.lines()[0]


def test_advisories_that_cannot_be_reached_are_no_clean_result() -> None:
    result = read(report({"name": "a", "version": "1.0", "skip_reason": "not found"}), {})
    assert result.exit_code == NOT_ASKED
    assert "cannot be reached" in result.lines()[-1]
