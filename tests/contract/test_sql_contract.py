"""projections/CONTRACT.md against the database: the document's columns are the views' own, and its example queries run over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources

import pytest

from tests.support.tables.alert_tables import Tables, tables_in

TEXT = resources.files("trainhouse.projections").joinpath("CONTRACT.md").read_text()
VIEWS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
CALLS = {
    "job_status_at": "job_status_at(at = now())",
    "model_stage_at": "model_stage_at(at = now())",
    "lineage_of": "lineage_of(id = 'x')",
    "lineage_to": "lineage_to(id = 'x')",
    "run_compare": "run_compare(a = 'x', b = 'y')",
    "step_data": "step_data(job_id = 'x', step = 1)",
    "run_curves": "run_curves(a = 'x', b = 'y', metric = 'loss', points = 10)",
}
PROMISED = {"job_status", "job_status_at", "gang_timeline", "gpu_seconds", "goodput", "cost", "queue_waits", "failures", "run_compare"} | {
    "utilization_by_team",
    "utilization_by_node",
    "utilization_by_hour",
    "lineage_edges",
    "lineage_of",
    "lineage_to",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with tables_in(tmp_path_factory.mktemp("contract") / "clickhouse") as made:
        yield made


def columns(section: str) -> list[str]:
    """Those of the section's last table: its first cells."""
    last = section[section.rindex("| column | meaning |") :]
    return re.findall(r"^\| (\w+) \|", last, re.MULTILINE)[1:]


def test_every_promised_view_is_documented() -> None:
    assert set(VIEWS) >= PROMISED


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_the_documents_columns_are_the_databases(tables: Tables, view: str) -> None:
    described = tables.ask(f"DESCRIBE TABLE {CALLS.get(view, view)}", {})
    assert [row["name"] for row in described] == columns(VIEWS[view])


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_the_example_runs(tables: Tables, view: str) -> None:
    [query] = re.findall(r"```sql\n(.*?)\n```", VIEWS[view], re.DOTALL)
    assert view in query
    tables.ask(query, {})
