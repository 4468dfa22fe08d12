"""A version is prepared by a job of two ranks of which one is killed in each pass: each unit and piece once, and the rest goes on."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
from pathlib import Path

import pytest
import yaml

from tests.chaos.drive import Training
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events import JobState
from trainhouse.events.model.output_names import pieces_prefix, work_prefix

pytestmark = pytest.mark.stack

ROWS = 3000


def test_a_preparation_that_is_killed_goes_on_with_what_is_missing(stack: LiveStack, tmp_path: Path) -> None:
    raw, name = f"raw-{secrets.token_hex(3)}", f"prepared-{secrets.token_hex(3)}"
    rows = ({"n": n, "text": f"  Row {n} " + "x" * 12_000, "user": n % 50} for n in range(ROWS))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    version = stack.ok("data", "publish", raw, str(tmp_path / "rows.jsonl"), "--shard-mib", "1", "--version", "1.0.0").split()[0]
    [shown] = stack.run("data", "show", version, "--json").objects()
    shards = len(shown["manifest"]["splits"]["train"]["shards"])
    assert shards > 30
    (folder := tmp_path / "job").mkdir()
    file = folder / f"{name}.yaml"
    preparation = {
        "source": f"{raw}@1.0.0",
        "output": name,
        "check": {"n": {"type": "int", "least": 0}, "text": {"type": "text"}},
        "clean": {"text": ["strip", "lower"]},
        "split": {"shares": "train=0.8,test=0.2", "by": "user"},
        "normalise": ["n"],
        "shuffle": 7,
        "shard_mib": 2,
        "job": {"gang": 2, "limits": {"restarts": 3}},
    }
    file.write_text(yaml.safe_dump(preparation))
    [job] = stack.run("data", "prepare", str(file), "--json").objects()
    job_id, client = job["job_id"], stack.client()
    objects = S3ObjectStore(StoreSettings.model_validate(read_toml(stack.data_dir / "trainhouse.toml")["s3"]))
    attempts = Path(read_toml(stack.data_dir / "trainhouse.toml")["agent"]["dir"]) / "attempts"

    def records(prefix: str) -> dict[str, float]:
        return {s.key: s.modified_s for s in objects.list(prefix) if s.key.endswith(".json")}

    units = until(lambda: records(work_prefix(job_id, name)) or None, "first units", every_s=0.02)
    killed = until(Training((attempts,), job_id).rank_pids, "ranks", every_s=0.02)
    os.kill(killed[0], signal.SIGKILL)
    pieces = until(lambda: records(pieces_prefix(job_id, name)) or None, "first pieces", every_s=0.02)
    again = [pid for pid in Training((attempts,), job_id).rank_pids() or () if pid not in killed]
    for pid in again[:1]:  # it may be through by now
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    status = until(lambda: status if (status := client.status(job_id)).state.final else None, lambda: client.status(job_id))
    assert status.state is JobState.SUCCEEDED and status.attempt >= 1, status
    after = records(work_prefix(job_id, name)) | records(pieces_prefix(job_id, name))
    assert units.items() <= after.items() and pieces.items() <= after.items()
    assert "units were there" in stack.ok("logs", job_id)
    [made] = [row for row in stack.run("data", "list", "--json").objects() if row["dataset"] == name]
    assert made["row_count"] == ROWS
    [shown] = stack.run("data", "show", f"{name}@sha256:{made['sha256']}", "--json").objects()
    sizes = [shard["bytes"] for shard in shown["manifest"]["splits"]["train"]["shards"]]
    assert len(sizes) > 10 and max(sizes) < 1.1 * min(sizes) and max(sizes) < 1.05 * 2**21
    [compared] = stack.run("data", "drift", f"{name}@sha256:{made['sha256']}", version, "--json").objects()
    drift = {field["field"]: field["verdict"] for field in compared["fields"]}
    assert drift["json.user"] == "STABLE" and drift["json.n"] == "DRIFTED", drift  # normalised
    assert "are whole" in stack.ok("data", "verify", f"{name}@sha256:{made['sha256']}")


def test_a_row_that_breaks_a_rule_ends_the_job_with_the_reason(stack: LiveStack, tmp_path: Path) -> None:
    raw = f"raw-{secrets.token_hex(3)}"
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n{"n": -1}\n')
    stack.ok("data", "publish", raw, str(tmp_path / "rows.jsonl"), "--version", "1.0.0")
    file = tmp_path / "prepare.yaml"
    job = {"limits": {"restarts": 0}}
    file.write_text(yaml.safe_dump({"source": f"{raw}@1.0.0", "output": f"{raw}-out", "check": {"n": {"least": 0}}, "job": job}))
    ended = stack.run("data", "prepare", str(file), "--wait")
    assert ended.code != 0 and "n is -1, less than 0; mend it, or write `invalid: drop`" in ended.out + ended.err, (ended.out, ended.err)
    for text, why in (
        ("source: a", "source"),
        ("job: {outputs: [x]}", "job.outputs"),
        ("tokenise: {column: a, tokenizer: x}", "no file x"),
    ):
        file.write_text(f"{text}\n" if text.startswith("source") else f"source: {raw}@1.0.0\noutput: b\n{text}\n")
        refused = stack.run("data", "prepare", str(file))
        assert refused.code in (Exit.USAGE, Exit.NOT_FOUND) and why in refused.err, (refused.code, refused.err)
