"""The view `dataset_drift` on the real engine: one row a field of a comparison, however often it was measured."""

from __future__ import annotations

from pathlib import Path

from tests.support.tables.alert_tables import tables_in
from trainhouse.events import DatasetDriftMeasured
from trainhouse.events.model.dataset_drift import FieldDrift
from trainhouse.events.wire import topics

NOW_MS = 1_790_000_000_000


def test_a_comparison_is_one_row_a_field_however_often_it_was_measured(tmp_path: Path) -> None:
    fields = (
        FieldDrift(field="json.age", verdict="DRIFTED", reason="KS 0.2 (limit 0.1)", psi=0.05, psi_limit=0.1, ks=0.2, ks_limit=0.1),
        FieldDrift(field="json.name", verdict="STABLE", missing=0.25, missing_before=0.5),
    )
    about = {"row_count": 20, "row_count_before": 10, "fields_compared": 2, "fields_drifted": 1, "fields_changed": 0, "user": "ada"}
    one = DatasetDriftMeasured(
        dataset="speech", sha256="a" * 64, against_sha256="b" * 64, predecessor=True, fields=fields, at_ms=NOW_MS, **about
    )
    other = one.model_copy(update={"against_sha256": "c" * 64, "predecessor": False})
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.TRACKING, [one, other])
        tables.put(topics.TRACKING, [one])
        age, name = tables.ask("SELECT * FROM dataset_drift WHERE predecessor ORDER BY field", {})
        assert tables.ask("SELECT count() AS n FROM dataset_drift", {}) == [{"n": 4}]
        [line, *_] = tables.ask("SELECT summary FROM events WHERE type = 'trainhouse.dataset.drift-measured.v1' ORDER BY summary DESC", {})
    assert (age["version"], age["against"]) == (f"speech@sha256:{'a' * 64}", f"speech@sha256:{'b' * 64}")
    assert (age["verdict"], age["psi"], age["ks"], age["ks_limit"], age["reason"]) == ("DRIFTED", 0.05, 0.2, 0.1, "KS 0.2 (limit 0.1)")
    assert (name["psi"], name["ks_limit"], name["missing"], name["missing_before"]) == (None, None, 0.25, 0.5)
    assert (name["row_count"], name["row_count_before"], name["fields_drifted"], name["measured_by"]) == (20, 10, 1, "ada")
    assert "against its predecessor: 1 of 2 fields drifted: json.age" in line["summary"]
