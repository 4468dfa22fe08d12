"""Events of tracking as rows: the newest word counts, or the first, as each thing needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainhouse.events import Event, JobState, envelope_of
from trainhouse.events.model.gang import GangAllocated, NodePlacement
from trainhouse.events.model.spec import JobSpec
from trainhouse.events.model.tracking import (
    ExperimentChanged,
    LoggedModelChanged,
    ModelLink,
    ModelsLinked,
    ParametersLogged,
    TagsChanged,
    TrackedRunBegun,
    TrackedRunChanged,
    experiment_id_of,
    project_of,
)
from trainhouse.events.wire import schemas, topics
from trainhouse.events.wire.codec import decode
from trainhouse.projections.ingest.lanes import FACTS
from trainhouse.projections.record import Record
from trainhouse.projections.rows import tracking
from trainhouse.projections.rows.lines.summary import summarize
from trainhouse.projections.store.tables import TABLES

SAMPLES = Path(schemas.__file__).parents[1] / "contract" / "samples"
NOW = 1_800_000_000_000


def rows_of(event: Event, offset: int) -> list[tuple[str, dict[str, Any]]]:
    envelope = envelope_of(event, id="e", source="test", now_ms=NOW)
    return [(r.table, r.values) for r in tracking.rows(envelope, Record(topics.TRACKING, 0, offset, NOW, b"r", b"{}"))]


def test_the_first_beginning_and_the_first_value_stay_the_newest_tag_counts() -> None:
    begun = TrackedRunBegun(job_id="r", experiment_id="1", experiment="a", project="a", started_at_ms=NOW)
    logged = ParametersLogged(job_id="r", parameters={"lr": "1"}, at_ms=NOW)
    tagged = TagsChanged(job_id="r", tags={"a": "1"}, deleted=("b", "a"), at_ms=NOW)
    for event, grows in ((begun, False), (logged, False), (tagged, True)):
        early, late = rows_of(event, 5)[0][1]["version"], rows_of(event, 9)[0][1]["version"]
        assert (late > early) is grows
    assert [(t["key"], t["deleted"]) for _, t in rows_of(tagged, 1)] == [("a", 0), ("b", 1)]


def test_a_change_is_a_row_a_thing() -> None:
    ended = TrackedRunChanged(job_id="r", state=JobState.FAILED, ended_at_ms=NOW, name="n", deleted=True, at_ms=NOW)
    assert {r["what"]: (r["text"], r["time"]) for _, r in rows_of(ended, 1)} == {
        "state": ("FAILED", None),
        "ended": ("", NOW),
        "name": ("n", None),
        "deleted": ("1", None),
    }
    resumed = TrackedRunChanged(job_id="r", state=JobState.RUNNING, at_ms=NOW)
    assert {r["what"]: r["time"] for _, r in rows_of(resumed, 1)} == {"state": None, "ended": None}
    assert rows_of(TrackedRunChanged(job_id="r", at_ms=NOW), 1) == []


def test_hyperparameters_of_a_spec_go_before_what_is_logged() -> None:
    spec = JobSpec.model_validate({"runtime": {"command": ["python"]}, "hyperparameters": {"lr": 0.5, "tied": True, "none": None}})
    place = NodePlacement(node_id="n", boot_id="b", address="a", first_rank=0, devices=("d",))
    allocated = GangAllocated(
        job_id="r", attempt=0, epoch=0, pool="p", spec=spec, spec_sha256="0" * 64, placements=(place,), master_address="a", master_port=1
    )
    rows = {r["key"]: r for _, r in rows_of(allocated, 100)}
    assert {k: r["value"] for k, r in rows.items()} == {"lr": "0.5", "tied": "true", "none": "none"}
    logged = rows_of(ParametersLogged(job_id="r", parameters={"lr": "1"}, at_ms=NOW), 0)[0][1]
    assert rows["lr"]["version"] > logged["version"]


def test_experiments_belong_to_projects_and_have_ids_of_their_names() -> None:
    assert [project_of(n) for n in ("vision/a/b", "vision", "/Users/x", "Default", "//")] == [
        "vision",
        "vision",
        "Users",
        "default",
        "default",
    ]
    assert experiment_id_of("Default") == "0" and experiment_id_of("a") != experiment_id_of("b") and experiment_id_of("a").isdigit()
    made = ExperimentChanged(experiment_id="1", name="a", project="a", created=True, tags={"k": "v"}, deleted_tags=("l",), at_ms=NOW)
    assert [(r["what"], r["key"], r["deleted"]) for _, r in rows_of(made, 1)] == [("created", "", 0), ("tag", "k", 0), ("tag", "l", 1)]


def test_of_a_logged_model_the_first_beginning_and_the_newest_status_count() -> None:
    about = {"model_id": "m-" + "0" * 32, "experiment_id": "1", "experiment": "a", "project": "a", "name": "n", "at_ms": NOW}
    created = LoggedModelChanged.model_validate(about | {"created": True, "status": "PENDING", "source_run_id": "r"})
    ready = LoggedModelChanged.model_validate(about | {"status": "READY", "deleted": True})
    first, later = ({r["what"]: r for _, r in rows_of(created, offset)} for offset in (1, 9))
    assert first["created"]["version"] > later["created"]["version"] and first["status"]["version"] < later["status"]["version"]
    assert (first["created"]["source_run_id"], first["status"]["text"]) == ("r", "PENDING")
    assert {r["what"]: r["text"] for _, r in rows_of(ready, 2)} == {"status": "READY", "deleted": "1"}
    linked = ModelsLinked(job_id="r", models=(ModelLink(model_id="m-1", role="output", step=3),), at_ms=NOW)
    assert [(table, r["role"], r["model_id"], r["step"]) for table, r in rows_of(linked, 1)] == [("run_models_rows", "output", "m-1", 3)]


def test_each_event_has_a_line() -> None:
    for path in sorted(SAMPLES.glob("trainhouse.tracking.*.json")):
        line = summarize(decode(path.read_bytes()).event)
        assert line and "=None" not in line and not line.startswith(("Tracked", "Environment", "Tags"))
    assert summarize(TrackedRunChanged(job_id="r", state=JobState.FAILED, deleted=True, at_ms=NOW)) == "run is FAILED, was deleted"


def test_every_table_is_known_to_ingestion() -> None:
    assert tracking.rows in FACTS[topics.TRACKING]
    assert {"tracked_runs_rows", "tracked_changes_rows", "parameters_rows", "tags_rows", "inputs_rows", "job_environments_rows"} <= set(
        TABLES
    )
    assert {"logged_models_rows", "run_models_rows"} <= set(TABLES)
