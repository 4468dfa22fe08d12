"""`models drift` on a terminal of 80 columns: a line a field and a line a window, names escaped; the freshness in `models show --json`."""

from typing import Any

import pytest

from tests.support.registry_requests import facts_of
from tests.unit.cli.test_narrow_tables import WIDTH, shown
from trainhouse.cli.models.drift_command import show_fields, show_quality
from trainhouse.cli.models.registry_commands import freshness
from trainhouse.client.dataset_versions import DatasetVersions
from trainhouse.events.model.dataset import DatasetVersionDeprecated, DatasetVersionPublished
from trainhouse.events.model.model_names import ModelStage
from trainhouse.scheduler.core.registry.registry_state import Version

Captured = pytest.CaptureFixture[str]
FIGURES = {"psi": 12.3456, "psi_limit": 0.1, "ks": 0.05, "ks_limit": 0.1, "wasserstein": 1.5, "wasserstein_limit": 0.2}


def field(name: str, verdict: str = "DRIFTED", reason: str = "", **figures: Any) -> dict[str, Any]:
    return {"side": "input", "field": name, "verdict": verdict, "reason": reason} | dict.fromkeys(FIGURES) | figures


def test_each_field_has_one_line_with_the_limits_that_it_exceeds(capsys: Captured) -> None:
    fields = [
        field("json.customer_age_in_years_at_the_time_of_the_order", reason="PSI 12.346", **FIGURES),
        field("json.\x1b[2Jname", "MISSING"),
    ]
    lines, _ = shown(capsys, lambda: show_fields(fields))
    header, long, short, reason = lines
    assert header.split() == ["side", "field", "verdict", "PSI", "KS", "W"] and max(map(len, (header, long, short))) <= WIDTH
    assert long.split()[2:] == ["DRIFTED", "12.35", ">", "0.10", "0.050", "1.50", ">", "0.20"]
    assert short.split() == ["input", r"json.\x1b[2Jname", "MISSING"]
    assert reason == f"input {fields[0]['field']}: PSI 12.346"


def test_a_window_has_its_figures_beside_offline_and_champion(capsys: Captured) -> None:
    row = {"start_ms": 1_795_635_855_000, "end_ms": 1_795_639_455_000, "metric": "accuracy", "labels": 200, "live": 0.8, "live_low": 0.75}
    more = {"live_high": 0.85, "offline": 0.9, "offline_low": None, "offline_high": None, "champion": 2, "champion_live": 0.81}
    lines, _ = shown(capsys, lambda: show_quality([row | more, row | more | {"offline": None, "champion_live": None}]))
    assert max(map(len, lines)) <= WIDTH
    assert lines[1].split()[-5:] == ["200", "0.8", "±0.05", "0.9", "0.81"]
    assert lines[2].split()[-3:] == ["200", "0.8", "±0.05"]


def test_a_version_has_its_age_and_how_far_its_data_is_behind() -> None:
    day_ms, sha = 86_400_000, {n: f"{n}" * 64 for n in (1, 2, 3)}

    def published(n: int) -> DatasetVersionPublished:
        splits = {"train": {"samples": 1, "bytes": 1, "shards": 1}}
        about = {"dataset": "digits", "sha256": sha[n], "schema_hash": sha[1], "split_config_hash": sha[1], "splits": splits}
        of_version = about | {"row_count": 1, "bytes": 1}
        return DatasetVersionPublished.model_validate({"version": of_version, "created_by": "ada", "published_at_ms": n * day_ms})

    deprecated = DatasetVersionDeprecated(dataset="digits", sha256=sha[2], reason="bad", user="ada", deprecated_at_ms=4 * day_ms)
    datasets = DatasetVersions.of([*(published(n) for n in (1, 2, 3)), deprecated])
    data = (f"digits@sha256:{sha[1]}", f"digits@sha256:{'9' * 64}", "s3://bucket/data")
    version = Version(1, "1.0.0", facts_of(1, data=data), ModelStage.STAGING, "ada", 9 * day_ms)
    found = freshness(version, datasets, 11 * day_ms)
    assert found == {"age_days": 2.0, "data_freshness": {data[0]: {"age_days": 10.0, "versions_behind": 1}}}
