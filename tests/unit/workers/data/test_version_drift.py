"""Drift between versions: known values of the measures, undrifted pairs that stay quiet, and injected shifts that do not."""

import math
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from trainhouse.events.model.dataset import DataShard, DataSplit, Manifest
from trainhouse.events.model.dataset_drift import MOST_DRIFT_FIELDS, DriftVerdict, FieldDrift
from trainhouse.events.model.dataset_profile import ProfiledVersion, VersionProfiles
from trainhouse.workers.data.drift.distributions import DriftLimits
from trainhouse.workers.data.drift.drift_measures import (
    chance_of_absence,
    chance_of_shares,
    chi_squared_quantile,
    ks,
    ks_noise,
    psi,
    psi_noise,
)
from trainhouse.workers.data.drift.version_drift import drift_of
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.field_profiles import FieldProfiles
from trainhouse.workers.data.publishing.sample_schema import SampleSchema

RULE = '{"by":"sample","shares":{"train":"1"}}'
Row = dict[str, Any]


def manifest(rows: list[Row], *more: list[Row], profiled: bool = True) -> ProfiledVersion:
    """The version of rows in splits `train`, `split-1` …, as their publication would have it, but for their shards."""
    schema, splits, made = SampleSchema(), {}, {}
    for n, part in enumerate((rows, *more)):
        profiles = FieldProfiles()
        for row in part:
            content = orjson.dumps(row)
            schema.add("k", {"json": content}, row)
            profiles.add({"json": content}, row)
        shard = DataShard(sha256=f"{n}" * 64, index_sha256="f" * 64, bytes=1, samples=len(part))
        name = f"split-{n}" if n else "train"
        splits[name], made[name] = DataSplit(shards=(shard,), samples=len(part), bytes=1), profiles.profiles()
    described = Manifest.of(schema.fields(), splits, RULE)
    return ProfiledVersion(described, VersionProfiles(splits=made) if profiled else None)


def drawn(count: int, seed: int, **changed: Callable[[random.Random], Any]) -> list[Row]:
    """Rows with a number, a whole number, a label, an id, a text and a value that is sometimes missing."""
    draw = random.Random(seed)
    columns: dict[str, Callable[[random.Random], Any]] = {
        "score": lambda d: d.gauss(10, 2),
        "age": lambda d: d.randrange(18, 80),
        "label": lambda d: d.choice("aaaabbbc"),
        "user": lambda d: f"u{d.getrandbits(40)}",
        "text": lambda d: "w" * d.randrange(1, 200),
        "city": lambda d: f"c{int(d.paretovariate(1.0)) % 400}",
        "rating": lambda d: d.randrange(5) if d.random() < 0.9 else None,
    }
    return [{name: make(draw) for name, make in (columns | changed).items()} for _ in range(count)]


def verdicts(before: ProfiledVersion, after: ProfiledVersion) -> dict[str, FieldDrift]:
    return {f.field.removeprefix("json."): f for f in drift_of(before, after).fields}


def test_measures_have_the_values_of_the_literature() -> None:
    # 100 in each of two groups against 50 and 150: with halves added, 100.5/201, and 50.5/201 and 150.5/201.
    before, after = 100.5 / 201, (50.5 / 201, 150.5 / 201)
    wanted = sum((q - before) * math.log(q / before) for q in after)
    assert psi([100, 100], [50, 150]) == pytest.approx(wanted) and wanted == pytest.approx(0.2721, abs=1e-3)
    assert psi([3, 4], [3, 4]) == 0
    assert ks([1, 1, 1, 1], [0, 0, 2, 2]) == 0.5 and ks([5, 5], [10, 10]) == 0
    # Critical values of KS: 1.36 and 1.63 times the root of (n + m) / nm.
    assert ks_noise(100, 100, 0.05) == pytest.approx(1.358 * math.sqrt(0.02), rel=1e-3)
    assert ks_noise(200, 50, 0.01) == pytest.approx(1.628 * math.sqrt(0.025), rel=1e-3)
    # Tables of chi-squared.
    for probability, degrees, value in (
        (0.95, 1, 3.841),
        (0.99, 1, 6.635),
        (0.95, 9, 16.919),
        (0.99, 9, 21.666),
        (0.999, 9, 27.877),
        (0.99, 63, 92.01),
    ):
        assert chi_squared_quantile(probability, degrees) == pytest.approx(value, rel=0.03)
    assert psi_noise(10, 1000, 1000, 0.05) == pytest.approx(16.919 * 0.002, rel=0.01) and psi_noise(1, 9, 9, 0.05) == 0
    # Fisher's exact test of the lady who tasted tea, 3 of 4 against 1 of 4: one side 17/70; both 34/70.
    assert chance_of_shares(3, 4, 1, 4) == pytest.approx(34 / 70) and chance_of_shares(1, 4, 3, 4) == pytest.approx(34 / 70)
    assert chance_of_shares(4, 4, 0, 4) == pytest.approx(2 / 70) and chance_of_shares(0, 9, 0, 9) == chance_of_shares(9, 9, 9, 9) == 1
    assert chance_of_shares(0, 10**6, 30, 10**6) == pytest.approx(2 * 2**-30, rel=1e-3)
    assert chance_of_absence(10, 100, 100) == 2**-10


SIZES = ((60, 60), (120, 1500), (1500, 120), (700, 700))


def test_undrifted_pairs_seldom_alarm() -> None:
    """Of 48 pairs with eight fields, alpha allows a field of one in a hundred; ten are certain to have none but for a fault."""
    alarms = [
        (sizes, seed, field.field, field.reason)
        for sizes in SIZES
        for seed in range(12)
        for field in drift_of(manifest(drawn(sizes[0], 2 * seed)), manifest(drawn(sizes[1], 2 * seed + 1))).fields
        if field.verdict not in (DriftVerdict.STABLE, DriftVerdict.TOO_FEW)
    ]
    assert not alarms


def test_few_rows_of_many_columns_with_rare_nulls_seldom_alarm() -> None:
    def drawn_rows(count: int, seed: int) -> list[Row]:
        draw = random.Random(seed)
        return [{f"c{k:03d}": 7 for k in range(150) if draw.random() > 0.003} for _ in range(count)]

    many = manifest(drawn_rows(5000, 999))
    alarms = sum(drift_of(manifest(drawn_rows(36, seed)), many).count(DriftVerdict.DRIFTED) > 0 for seed in range(60))
    assert alarms <= 2, "alpha allows one of 100 pairs"
    lost = manifest([row | {"c000": None} if n % 3 == 0 else row for n, row in enumerate(drawn_rows(36, 1))])
    assert "missing 0" in verdicts(many, lost)["c000"].reason


def test_many_rows_more_are_no_drift_and_a_slight_shift_of_very_many_is_none() -> None:
    few, many = manifest(drawn(300, 1)), manifest(drawn(4000, 2, score=lambda d: d.gauss(10.1, 2)))
    found = drift_of(few, many)
    assert (found.row_count_before, found.row_count) == (300, 4000)
    assert {f.verdict for f in found.fields} == {DriftVerdict.STABLE}
    same = manifest(drawn(3000, 1))
    assert drift_of(same, same).count(DriftVerdict.STABLE) == len(same.manifest.fields)


@pytest.mark.parametrize("size", [250, 2500])
@pytest.mark.parametrize(
    ("column", "change", "reason"),
    [
        ("score", lambda d: d.gauss(12, 2), "KS"),
        ("score", lambda d: d.gauss(10, 5), "PSI"),
        ("age", lambda d: d.randrange(40, 80), "KS"),
        ("age", lambda d: d.randrange(18, 80) * 12, "PSI"),
        ("label", lambda d: d.choice("abbbbbbc"), "PSI of values"),
        ("label", lambda d: d.choice("aaabbbcX"), "new values: 'X'"),
        ("label", lambda d: d.choice("aaaabbbb"), "lost values: 'c'"),
        ("text", lambda d: "w" * d.randrange(100, 300), "of lengths"),
        ("user", lambda d: f"user-{d.getrandbits(40)}", "of lengths"),
        ("rating", lambda d: d.randrange(5) if d.random() < 0.6 else None, "missing 1"),
        ("rating", lambda d: d.choice([0, 1, 2, 3, 4, 9]), "new values: '9'"),
        ("city", lambda d: f"c{int(d.paretovariate(0.3)) % 400}", "PSI of values"),
    ],
)
def test_an_injected_shift_is_found_in_its_field_alone(size: int, column: str, change: Callable[[random.Random], Any], reason: str) -> None:
    found = verdicts(manifest(drawn(size, 1)), manifest(drawn(size, 2, **{column: change})))
    assert found[column].verdict == DriftVerdict.DRIFTED and reason in found[column].reason, found[column]
    others = {name: f.verdict for name, f in found.items() if name != column}
    assert set(others.values()) == {DriftVerdict.STABLE}


@pytest.mark.parametrize("zeros", [0.92, 0.5])
def test_a_unit_that_changes_is_found_beside_many_zeros(zeros: float) -> None:
    def amounts(seed: int, scale: float) -> list[Row]:
        draw = random.Random(seed)
        return [{"amount": 0.0 if draw.random() < zeros else round(draw.uniform(1, 10) * scale, 4)} for _ in range(8000)]

    before = manifest(amounts(1, 1))
    assert verdicts(before, manifest(amounts(2, 1000)))["amount"].verdict == DriftVerdict.DRIFTED
    assert all(verdicts(before, manifest(amounts(seed, 1)))["amount"].verdict == DriftVerdict.STABLE for seed in range(3, 13))


def test_a_frequent_value_that_is_gone_among_more_values_than_are_listed_is_found() -> None:
    def cities(seed: int, frequent: str) -> list[Row]:
        draw = random.Random(seed)
        return [{"city": frequent if draw.random() < 0.6 else f"a{draw.randrange(100):03d}"} for _ in range(8000)]

    before = manifest(cities(1, "AAAA"))
    assert (
        verdicts(manifest(cities(1, "AAAA"), cities(4, "AAAA")), manifest(cities(2, "BBBB"), cities(3, "BBBB")))["city"].verdict
        == "DRIFTED"
    )
    assert verdicts(before, manifest(cities(2, "BBBB")))["city"].verdict == DriftVerdict.DRIFTED
    assert verdicts(before, manifest([{"city": f"a{n % 100:03d}"} for n in range(8000)]))["city"].verdict == DriftVerdict.DRIFTED
    assert all(verdicts(before, manifest(cities(seed, "AAAA")))["city"].verdict == DriftVerdict.STABLE for seed in range(3, 13))


def test_numbers_that_become_words_are_found() -> None:
    before = manifest([{"price": f"{n / 8}"} for n in range(2000)])
    after = manifest([{"price": f"{n / 8}" if n % 3 else f"unknown {n}"} for n in range(2000)])
    assert "numbers 100.0 % → 66.7 %" in verdicts(before, after)["price"].reason


def test_fields_that_come_go_or_change_type_are_named() -> None:
    before = manifest([{"a": n, "b": "x", "c": 1} for n in range(100)])
    after = manifest([{"a": float(n) + 0.5, "b": "x", "d": 1} for n in range(100)])  # and two bytes more a row
    found = verdicts(before, after)
    assert {name: f.verdict.value for name, f in found.items()} == {
        "json": "STABLE", "a": "RETYPED", "b": "STABLE", "c": "REMOVED", "d": "ADDED",
    }  # fmt: skip
    assert found["a"].reason == "int became float" and found["d"].missing == 0 and found["c"].missing_before == 0


def test_too_few_values_and_versions_without_distributions_are_no_drift() -> None:
    few = verdicts(manifest(drawn(20, 1)), manifest(drawn(900, 2, score=lambda d: d.gauss(90, 1))))
    assert few["score"].verdict == DriftVerdict.TOO_FEW and few["score"].psi is None
    unknown = verdicts(manifest(drawn(900, 1), profiled=False), manifest(drawn(900, 2)))
    assert {f.verdict for f in unknown.values()} == {DriftVerdict.UNKNOWN}


def test_splits_are_compared_together_or_one_by_one() -> None:
    shifted = drawn(500, 3, score=lambda d: d.gauss(16, 2))
    before, after = manifest(drawn(500, 1), drawn(500, 2)), manifest(drawn(500, 4), shifted)
    assert verdicts(before, after)["score"].verdict == DriftVerdict.DRIFTED
    assert drift_of(before, after, split="train").count(DriftVerdict.DRIFTED) == 0
    assert drift_of(before, after, split="split-1").count(DriftVerdict.DRIFTED) > 0
    # Samples that went to other splits are no drift of the version.
    assert drift_of(before, manifest(drawn(500, 2), drawn(200, 1), drawn(300, 7))).count(DriftVerdict.DRIFTED) == 0
    with pytest.raises(InvalidDataError, match="no split 'dev' is in both versions; both have: split-1, train"):
        drift_of(before, after, split="dev")


def test_a_column_that_is_gone_comes_before_new_ones_in_the_event() -> None:
    before = manifest([{"label": "a"} for _ in range(100)])
    after = manifest([{"label": None} | {f"c{k}": n for k in range(MOST_DRIFT_FIELDS + 2)} for n in range(100)])
    event = drift_of(before, after).event(dataset="d", project="p", sha256="a" * 64, against="b" * 64, predecessor=True, user="a", at_ms=5)
    assert ("json.label", "REMOVED") in [(f.field, f.verdict) for f in event.fields]


def test_limits_are_the_askers() -> None:
    before, after = manifest(drawn(3000, 1)), manifest(drawn(3000, 2, score=lambda d: d.gauss(10.3, 2)))
    assert drift_of(before, after).count(DriftVerdict.DRIFTED) == 0
    strict = drift_of(before, after, DriftLimits(psi=0.01, ks=0.05))
    assert strict.fields[0].field == "json.score" and strict.count(DriftVerdict.DRIFTED) == 1


def test_the_event_has_the_fields_that_changed_most_and_counts_all() -> None:
    columns = MOST_DRIFT_FIELDS + 9
    before = manifest([{f"c{k}": n for k in range(columns)} for n in range(100)])
    after = manifest([{f"c{k}": n + (1000 if k == columns - 1 else 0) for k in range(columns)} | {"new": 1} for n in range(100)])
    found = drift_of(before, after)
    event = found.event(dataset="d", project="p", sha256="a" * 64, against="b" * 64, predecessor=True, user="ada", at_ms=5)
    assert len(event.fields) == MOST_DRIFT_FIELDS and event.fields_compared == columns + 2
    assert (event.fields_drifted, event.fields_changed) == (1, 1)
    assert [f.field for f in event.fields[:2]] == [f"json.c{columns - 1}", "json.new"] and event.subject() == "d"
