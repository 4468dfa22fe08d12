"""`data drift` on a terminal of 80 columns: a line a field, and no control characters of its names."""

import pytest

from tests.unit.cli.test_narrow_tables import WIDTH, shown
from trainhouse.cli.data.drift_command import show_fields
from trainhouse.events.model.dataset_drift import FieldDrift

Captured = pytest.CaptureFixture[str]
FIGURES = {"psi": 12.3456, "psi_limit": 0.1, "ks": 1.0, "ks_limit": 0.1, "missing": 1.0, "missing_before": 0.985}
FIELDS = (
    FieldDrift(field="json.customer_age_in_years_at_the_time_of_the_order", verdict="DRIFTED", reason="PSI 12.35", **FIGURES),
    FieldDrift(field="json.price", verdict="STABLE", psi=0.01, psi_limit=0.1, ks=0.01, ks_limit=0.1),
)


def test_each_field_has_one_line(capsys: Captured) -> None:
    lines, _ = shown(capsys, lambda: show_fields(FIELDS))
    header, long, short, reason = lines
    assert header.split() == ["field", "verdict", "PSI", "KS", "missing", "%"]
    assert long.split()[1:] == ["DRIFTED", "12.3", ">", "0.10", "1.000", ">", "0.10", "98.5", "→", "100.0"]
    assert long.split()[0] == "json.customer_age_in_years_at…" and len(long) <= WIDTH
    assert short.split() == ["json.price", "STABLE", "0.010", "0.010", "0.0"]
    assert reason == f"{FIELDS[0].field}: PSI 12.35"


def test_names_are_escaped(capsys: Captured) -> None:
    name = "json.a\x1b[2J\nb\r\x9b[é\\"
    lines, _ = shown(capsys, lambda: show_fields((FieldDrift(field=name, verdict="STABLE", reason="so"),)))
    assert lines[-1] == r"json.a\x1b[2J\nb\r\x9b[é\: so"
    assert lines[-2].split()[0].startswith(r"json.a\x1b[2J") and len(lines) == 3
