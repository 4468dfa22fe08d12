"""The value of a spec's variable is in no table that people read: not of new rows, and not of those that were written before."""

from pathlib import Path

from trainhouse.events import Envelope, JobAdmitted, JobSpec, JobSubmitted, envelope_of
from trainhouse.events.wire.codec import encode
from trainhouse.projections.record import Record
from trainhouse.projections.rows import dead_letters, specs
from trainhouse.projections.rows.lines import event_lines
from trainhouse.projections.store.clickhouse import connect_embedded
from trainhouse.projections.store.migrate import migrate, migrations

VALUE = 'value "of" a\\variable}, 8471'
SPEC = JobSpec.model_validate(
    {"runtime": {"command": ["python"]}, "env": {"PLAIN": VALUE, "EMPTY": "", "LAST": "x\ny"}, "labels": {"env": '{"env":{"A":"kept"}}'}}
)
BEFORE = "masked_env"


def envelope() -> Envelope:
    return envelope_of(JobSubmitted(job_id="j", spec=SPEC), id="e", source="t", now_ms=1)  # type: ignore[arg-type]


def admitted() -> Envelope:
    event = JobAdmitted(job_id="j", spec=SPEC, spec_sha256=SPEC.sha256(), submission_id="e", submitted_at_ms=1)  # type: ignore[arg-type]
    return envelope_of(event, id="e2", source="t", now_ms=1)


RECORD = Record(topic="trainhouse.jobs", partition=0, offset=0, timestamp_ms=1, key=None, value=encode(envelope()))


def test_new_rows_have_none() -> None:
    told = [*event_lines.rows(envelope(), RECORD), *event_lines.rows(admitted(), RECORD), *specs.rows(admitted(), RECORD)]
    told.append(dead_letters.unreadable_row(RECORD, "it cannot be read"))
    text = repr([row.values for row in told])
    assert len(told) == 4 and "8471" not in text and "PLAIN" in text and "kept" in text


def test_old_rows_are_rewritten_as_new_ones_are_written(tmp_path: Path) -> None:
    """Rows as they were written before, through the migration: the same as rows of today."""
    clickhouse = connect_embedded(tmp_path / "clickhouse", 1024**3, 2)
    try:
        known = migrations()
        number = next(m.number for m in known if m.name == BEFORE)
        migrate(clickhouse, [m for m in known if m.number < number])
        whole = admitted().event.model_dump_json().replace("\\", "\\\\").replace("'", "\\'")
        for table, columns in (("events_rows", "job_id, event_id, json"), ("decisions_rows", "job_id, partition, json")):
            clickhouse.command(f"INSERT INTO {table} ({columns}) VALUES ('j', '1', '{whole}'), ('k', '1', '{{}}')")
        config = "map('env.PLAIN', 'value 8471', 'labels.env', 'kept', 'name', 'x')"
        clickhouse.command(f"INSERT INTO job_specs_rows (job_id, config, json) SELECT 'j', {config}, '{whole}'")
        head = encode(envelope()).decode().replace("\\", "\\\\").replace("'", "\\'")
        clickhouse.command(f"INSERT INTO dead_letters_rows (topic, head) VALUES ('t', '{head}')")
        migrate(clickhouse, known)
        masked = next(row.values["json"] for row in event_lines.rows(admitted(), RECORD))
        for table in ("events_rows", "decisions_rows", "job_specs_rows"):
            assert clickhouse.rows(f"SELECT json FROM {table} WHERE job_id = 'j'") == [(masked,)], table
        assert clickhouse.rows("SELECT json FROM events WHERE job_id = 'k'") == [("{}",)]
        assert clickhouse.rows("SELECT config FROM job_specs") == [({"env.PLAIN": "***", "labels.env": "kept", "name": "x"},)]
        ((shown,),) = clickhouse.rows("SELECT head FROM dead_letters")
        assert shown.endswith('"env": ***') and "8471" not in shown
    finally:
        clickhouse.close()
