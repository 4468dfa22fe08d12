"""`trainhouse checkpoint`: what it verifies, and what it takes for a checkpoint's name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from typer.testing import CliRunner

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.commits import commit_key
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.cli.jobs.checkpoint_commands import delete, tag, untag, verified, verify
from trainhouse.cli.jobs.job_status import checkpoint_tiers, stall_text, tags_of, upload_pace
from trainhouse.cli.main import build
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.events.model.resume_ref import parse_resume_from


def saved() -> MemoryObjectStore:
    objects = MemoryObjectStore()
    at = Checkpointer(CheckpointerSettings("gpt", 1, 0, "spec"), objects)
    for step in (10, 20):
        at.save({"same": torch.ones(1000), "w": torch.full((1000,), float(step))}, {}, step, 1.0)
    return objects


def test_verification_names_each_damaged_thing_by_its_checkpoint() -> None:
    objects = saved()
    rows = verified(objects, parse_resume_from("gpt"))
    assert [(row["commit"], row["step"], row["damaged"]) for row in rows] == [(1, 10, []), (2, 20, [])]
    assert all(row["chunks"] >= 1 and row["bytes_total"] > 8000 for row in rows)
    for found in list(objects.list("jobs/gpt/chunks/")):
        objects.put(found.key, b"x" * found.size_bytes)
    assert [len(row["damaged"]) for row in verified(objects, parse_resume_from("gpt"))] == [row["chunks"] for row in rows]
    (row,) = verified(objects, parse_resume_from("gpt@1"))
    assert row["commit"] == 1 and "hash to" in row["damaged"][0]
    objects.put(commit_key("gpt", 1), b"{}")
    (row,) = verified(objects, parse_resume_from("gpt@1"))
    assert row["step"] is None and "no readable commit entry" in row["damaged"][0]
    assert verified(objects, parse_resume_from("gpt@0")) == [] == verified(objects, parse_resume_from("other"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tag("gpt", "x"), "write JOB@N; `trainhouse checkpoints gpt`"),
        (lambda: delete("gpt@best"), "write JOB@N"),
        (lambda: tag("gpt@step:7", "x"), "write JOB@N"),
        (lambda: verify("a b@1"), "names no checkpoint"),
        (lambda: untag("a b", "x"), "no valid id"),
    ],
)
def test_what_names_no_checkpoint_says_what_to_write(call: Callable[[], None], message: str) -> None:
    with pytest.raises(CliError, match=message) as caught:
        call()
    assert caught.value.code is Exit.USAGE


@pytest.mark.parametrize("name", ["tag", "untag", "tags", "verify", "delete", "export", "import"])
def test_help_has_an_example(name: str) -> None:
    assert f"trainhouse checkpoint {name}" in CliRunner().invoke(build(), ["checkpoint", name, "--help"]).output


def test_tiers_are_of_where_a_checkpoint_is_now() -> None:
    rows = [
        {"commit": 1, "state": "DELETED", "memory_nodes": ["n1"]},
        {"commit": 2, "state": "COMPLETED", "memory_nodes": ["n1"]},
        {"commit": 3, "state": "COMPLETED", "memory_nodes": ["n1", "n2"]},
    ]
    assert checkpoint_tiers(rows, ended=False) == ["-", "store", "store, memory of 2 nodes"]
    assert checkpoint_tiers(rows[:2], ended=False) == ["-", "store, memory of 1 node"]
    assert checkpoint_tiers([rows[1] | {"memory_nodes": []}], ended=False) == ["store"]
    assert checkpoint_tiers(rows, ended=True) == ["-", "store", "store"], "nodes keep nothing of a job that ended"
    tags = [{"commit": None, "name": "unreadable"}, {"commit": 2, "name": "a"}, {"commit": 2, "name": "b"}]
    assert [tags_of(row, tags) for row in rows] == [[], ["unreadable", "a", "b"], ["unreadable"]]
    assert (stall_text(0.0324), stall_text(95.0)) == ("32ms", "1m35s")


def test_a_list_says_where_uploads_set_the_pace_of_saves() -> None:
    def saves(every_s: float, upload_s: float, count: int = 4, epoch: int = 1) -> list[dict[str, float]]:
        return [{"epoch": epoch, "completed_at_ms": n * every_s * 1000, "upload_s": upload_s} for n in range(count)]

    sentence = upload_pace(saves(7, 1.0) + saves(300, 296.0, epoch=2), now_ms=1_400_000)
    assert sentence is not None and "took 99% of the time" in sentence and "up to 300 s" in sentence
    assert upload_pace(saves(65, 61.0), now_ms=300_000) is not None
    policy = saves(300, 285.0)
    for rows in (saves(300, 200.0), policy, saves(20, 19.0), saves(300, 296.0, 3), saves(300, 296.0) + saves(300, 296.0, 1, epoch=2)):
        assert upload_pace(rows, now_ms=1_000_000) is None
    assert upload_pace(saves(300, 296.0), now_ms=10_000_000) is None, "long ago"
