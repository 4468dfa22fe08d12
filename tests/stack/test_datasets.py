"""Datasets on a whole stack: published, named by jobs, shown, compared, checked and deprecated."""

from __future__ import annotations

import json
import secrets
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events.model.dataset_keys import shard_key

pytestmark = pytest.mark.stack
NAME = f"chats-{secrets.token_hex(3)}"
SHOWN = "import os; print(os.environ['TRAINHOUSE_DATASET'], os.environ['TRAINHOUSE_DATA_SPLIT'])"


def rows(path: Path, count: int) -> Path:
    path.write_text("".join(json.dumps({"text": f"row {n}", "user": f"u{n % 13}"}) + "\n" for n in range(count)))
    return path


def published(stack: LiveStack, path: Path, *options: str) -> str:
    return stack.ok("data", "publish", NAME, str(path), "--group", "user", "--split", "train=0.7,test=0.3", *options).split()[0]


def ended(stack: LiveStack, folder: Path, data: dict[str, str], purpose: str | None = None) -> tuple[str, str, str]:
    """A job's id, state and reason, with this data in its spec."""
    file = folder / f"{secrets.token_hex(4)}.yaml"
    file.write_text(json.dumps({"data": data, "runtime": {"command": ["python", "-c", SHOWN]}} | ({"purpose": purpose} if purpose else {})))
    job_id = stack.ok("submit", "--no-wait", "--no-code", str(file)).strip()

    def look() -> dict[str, Any] | None:
        done = stack.run("status", job_id, "--json")
        found = json.loads(done.out) if done.code == Exit.OK else None
        return found if found is not None and found["state"] in ("SUCCEEDED", "REJECTED", "FAILED") else None

    found = until(look, f"the end of {job_id}")
    assert found is not None
    return job_id, found["state"], found["reason"]


def test_a_version_is_published_named_by_jobs_shown_and_deprecated(stack: LiveStack, tmp_path: Path) -> None:
    version = published(stack, rows(tmp_path / "a.jsonl", 500), "--version", "1.0.0", "--purpose", "research", "--licence", "CC-BY-4.0")
    assert version.startswith(f"{NAME}@sha256:")
    assert (
        published(stack, rows(tmp_path / "b.jsonl", 500), "--version", "1.0.0", "--purpose", "research", "--licence", "CC-BY-4.0")
        == version
    )

    stack.ok("submit", "--no-code", "--wait", "--purpose", "research", "--data", f"{NAME}@1.0.0:train", "--", "python", "-c", SHOWN)
    job_id, state, reason = ended(stack, tmp_path, {"dataset": f"{NAME}@1.0.0", "split": "train", "purpose": "research"})
    assert state == "SUCCEEDED", reason
    until(lambda: f"{version} train" in stack.ok("logs", job_id), "the rank's words")
    for data, why in (
        ({"dataset": f"{NAME}-2@1.0.0"}, f"there is no dataset {NAME}-2"),
        ({"dataset": f"{NAME}@2.0.0"}, f"has no version 2.0.0; it has: {NAME}@1.0.0"),
        ({"dataset": f"{NAME}@1.0.0", "split": "dev"}, "has no split dev; name one of: test, train"),
        ({"dataset": f"{NAME}@1.0.0"}, "name the purpose"),
    ):
        _, state, reason = ended(stack, tmp_path, data)
        assert state == "REJECTED" and why in reason, reason

    refused = stack.run("data", "publish", NAME, str(rows(tmp_path / "c.jsonl", 600)), "--version", "1.0.0")
    assert refused.code == Exit.REJECTED and f"is published, but not as 1.0.0: {NAME}@1.0.0 is {version}" in refused.err
    other = published(stack, rows(tmp_path / "c.jsonl", 600), "--version", "1.1.0")
    listed = [json.loads(line) for line in stack.ok("data", "list", NAME, "--json").splitlines()]
    assert {v["version"]: v["tags"] for v in listed}[other] == ["1.1.0"] and len(listed) == 3
    assert "500" in stack.ok("data", "show", f"{NAME}@1.0.0") and "split test" in stack.ok("data", "diff", version, other)
    assert '{"text":' in stack.ok("data", "sample", version, "--split", "test", "--at", "3")
    assert json.loads(stack.ok("data", "sample", version, "--field", "json"))["text"].startswith("row ")
    assert "shards are whole" in stack.ok("data", "verify", version)

    stack.ok("data", "deprecate", version, "--reason", "wrong labels")
    _, state, reason = ended(stack, tmp_path, {"dataset": version, "purpose": "research"})
    assert state == "REJECTED" and "is deprecated: wrong labels. Name one of:" in reason
    _answers(stack, version, other)


def gateway(stack: LiveStack) -> httpx.Client:
    """A client of the stack's gateway."""
    exported = dict(line.removeprefix("export ").split("=", 1) for line in stack.ok("env").splitlines())
    url, token = (shlex.split(exported[name])[0] for name in ("TRAINHOUSE_GATEWAY_URL", "TRAINHOUSE_GATEWAY_TOKEN"))
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=480)


def _answers(stack: LiveStack, version: str, other: str) -> None:
    """Over SQL and HTTP."""
    query = f"SELECT version, deprecated, row_count, tags, splits FROM training_datasets WHERE dataset = '{NAME}' ORDER BY published_at"
    until(
        lambda: stack.ok("sql", query, "--json").count("version") == 3 and '"deprecated":1' in stack.ok("sql", query, "--json"),
        "three rows",
    )
    found = [json.loads(line) for line in stack.ok("sql", query, "--json").splitlines()]
    assert found[0] == {"version": version, "deprecated": 1, "row_count": 500, "tags": ["1.0.0"], "splits": ["test", "train"]}
    with gateway(stack) as client:
        items = client.get(f"/v1/datasets/{NAME}").json()["items"]
        assert {item["version"] for item in items} > {version, other} and len(items) == 3
        assert {item["version"] for item in client.get("/v1/datasets", params={"deprecated": "true"}).json()["items"]} >= {version}
        assert client.get("/v1/datasets/none").status_code == 404


def test_drift_is_shown_and_is_in_sql_and_over_http(stack: LiveStack, tmp_path: Path) -> None:
    name = f"prices-{secrets.token_hex(3)}"

    def version(tag: str, first: int, unit: str) -> str:
        path = tmp_path / f"{tag}.jsonl"
        path.write_text("".join(json.dumps({"price": first + n % 97, "unit": unit, "id": f"i{tag}{n}"}) + "\n" for n in range(400)))
        return stack.ok("data", "publish", name, str(path), "--version", tag).split()[0]

    one, two = version("1.0.0", 0, "eur"), version("1.1.0", 0, "eur")
    path = tmp_path / "moved.jsonl"
    path.write_text(
        "".join(json.dumps({"price": 50 + n % 97, "unit": "usd" if n % 2 else "eur", "id": f"m{n}"}) + "\n" for n in range(300))
    )
    moved = stack.run("data", "publish", name, str(path), "--version", "1.2.0")
    assert moved.code == Exit.OK and "fields drifted" in moved.err, moved.err
    three = moved.out.split()[0]

    found = json.loads(stack.ok("data", "drift", three, "--json"))
    assert (found["version"], found["against"], found["row_count"], found["row_count_before"]) == (three, two, 300, 400)
    verdicts = {field["field"]: (field["verdict"], field["reason"]) for field in found["fields"]}
    assert (
        verdicts["json.price"][0] == "DRIFTED" and verdicts["json.unit"][0] == "DRIFTED" and "new values: 'usd'" in verdicts["json.unit"][1]
    )
    shown = stack.ok("data", "drift", f"{name}@1.2.0", f"{name}@1.0.0")
    assert one in shown and "json.price: PSI" in shown
    table = [line for line in shown.split("json.price")[0].splitlines() if not line.startswith(("version ", "against "))]
    assert max(map(len, table)) <= 80, shown  # an id is never broken
    assert "DRIFTED" not in stack.ok("data", "drift", two)
    assert "has no version before it" in stack.run("data", "drift", one).err

    job_id, state, reason = ended(stack, tmp_path, {"dataset": f"{name}@1.0.0", "split": "train"})
    assert state == "SUCCEEDED", reason
    assert json.loads(stack.ok("data", "drift", three, job_id, "--json"))["against"] == one
    for kind, ending in (("wds", "tar"), ("parquet", "parquet")):
        assert "300 samples, 1 files" in stack.ok("data", "export", three, "--format", kind, "--out", str(tmp_path / "out"))
        assert (tmp_path / "out" / "train" / f"train-000000.{ending}").stat().st_size > 1000
    assert "there is no job none" in stack.run("data", "drift", three, "none").err

    query = f"SELECT version, against, predecessor, field FROM dataset_drift WHERE dataset = '{name}' AND verdict = 'DRIFTED'"
    wanted = {(three, two, 1, "json.unit"), (three, one, 0, "json.unit")}
    until(
        lambda: wanted <= {tuple(json.loads(line).values()) for line in stack.ok("sql", query, "--json").splitlines()},
        "rows of dataset_drift",
    )
    with gateway(stack) as client:
        answer = client.get(f"/v1/datasets/{name}/drift").json()
        assert (answer["version"], answer["against"]) == (three, two) and answer["fields"] == found["fields"]


def test_a_source_in_the_store_has_the_id_of_its_folder(stack: LiveStack, tmp_path: Path) -> None:
    settings = StoreSettings.model_validate(read_toml(stack.data_dir / "trainhouse.toml")["s3"])
    name, objects = f"crawl-{secrets.token_hex(3)}", S3ObjectStore(settings)
    for part in ("a", "b"):
        objects.put(f"sources/{name}/{part}.jsonl", rows(tmp_path / f"{part}.jsonl", 300).read_bytes())
    uri = f"s3://{settings.bucket}/sources/{name}"
    here = stack.ok("data", "publish", name, str(tmp_path), "--version", "1.0.0")
    there = stack.run("data", "publish", name, f"{uri}/", "--version", "1.0.0")
    assert there.code == Exit.OK and there.out == here and "nothing changed" in there.err
    one = stack.ok("data", "publish", name, f"{uri}/a.jsonl").split()[0]
    assert "source       jsonl of 1 files" in stack.ok("data", "show", one)
    for place, why in ((f"{uri}-none", "there is no such object"), ("s3://only", "write s3://BUCKET/PREFIX")):
        refused = stack.run("data", "publish", name, place)
        assert refused.code == Exit.USAGE and why in refused.err, refused.err
    missing = stack.run("data", "publish", name, "s3://no-such-bucket/x")
    assert missing.code != Exit.OK and "check the bucket" in missing.err, missing.err


def test_a_version_that_breaks_what_a_job_reads_or_is_lost_is_refused(stack: LiveStack, tmp_path: Path) -> None:
    settings = StoreSettings.model_validate(read_toml(stack.data_dir / "trainhouse.toml")["s3"])
    name, objects = f"fields-{secrets.token_hex(3)}", S3ObjectStore(settings)
    stack.ok("data", "publish", name, str(rows(tmp_path / "a.jsonl", 50)), "--version", "1.0.0")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": n}) + "\n" for n in range(50)))
    later = stack.ok("data", "publish", name, str(tmp_path / "b.jsonl"), "--version", "2.0.0").split()[0]
    one, two = f"{name}@1.0.0", f"{name}@2.0.0"
    for data, why in (
        ({"dataset": two, "fields": {"json.text": "text"}}, f"{two} breaks what the job reads: json.text is int, not text"),
        ({"dataset": two, "schema_of": one}, f"{two} breaks the schema of {one}: json.text is int, not text, json.user is not in it"),
    ):
        _, state, reason = ended(stack, tmp_path, data)
        assert state == "REJECTED" and why in reason, reason
    _, state, reason = ended(stack, tmp_path, {"dataset": one, "split": "train", "fields": {"json.text": "text"}, "schema_of": one})
    assert state == "SUCCEEDED", reason

    [shard] = stack.run("data", "show", later, "--json").objects()[0]["manifest"]["splits"]["train"]["shards"]
    objects.delete(shard_key("default", shard["sha256"]))
    program = "from trainhouse.workers import Session\ns = Session.start()\nl = s.loader('train', batch=2)\nfor _ in s.steps(3): next(l)"
    job = stack.ok("submit", "--no-wait", "--no-code", "--data", f"{two}:train", "--", "python", "-c", program).strip()
    until(lambda: stack.run("data", "quarantine", "list", name, "--json").objects(), "the shard in quarantine")
    _, state, reason = ended(stack, tmp_path, {"dataset": two, "split": "train"})
    assert state == "REJECTED" and f"{two} is unhealthy: 1 of the 1 shards of split train cannot be read" in reason, reason
    stack.run("cancel", job)
    assert "is released" in stack.ok("data", "quarantine", "rebuild", later, "--from", str(tmp_path / "b.jsonl"))
    _, state, reason = ended(stack, tmp_path, {"dataset": two, "split": "train"})
    assert state == "SUCCEEDED", reason
