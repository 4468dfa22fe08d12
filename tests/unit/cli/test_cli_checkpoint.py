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
