"""`trainhouse profile` of a real job of two ranks: traces with their steps and operations, as artifacts; and refusals."""

from __future__ import annotations

import gzip
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import warm_cli
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack
GPT = ("--gang", "2", "-p", "steps=1000000", "--", "python", "-m", "trainhouse.workers.examples.gpt")


def trace_of(file: Path) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(file.read_bytes())))


def test_traces_of_both_ranks_are_artifacts_of_the_job(stack: LiveStack, tmp_path: Path) -> None:
    job = json.loads(stack.ok("submit", "--no-code", "--json", *GPT).splitlines()[0])["job_id"]
    try:
        until(lambda: (json.loads(stack.ok("status", job, "--json"))["step"] or 0) > 0, lambda: stack.ok("status", job))
        told = stack.ok("profile", job, "--ranks", "0-1", "--steps", "4", "--out", str(tmp_path / "traces"))
        assert "records 4 steps" in told and told.count("MiB: profiles/") == 2, told
        for rank in (0, 1):
            trace = trace_of(tmp_path / "traces" / f"rank-{rank}.pt.trace.json.gz")
            names = [str(event.get("name")) for event in trace["traceEvents"]]
            steps = [int(name.partition("#")[2]) for name in names if name.startswith("ProfilerStep#")]
            assert len(steps) == 4 and steps == list(range(steps[0], steps[0] + 4))
            assert trace["distributedInfo"]["rank"] == rank and trace["distributedInfo"]["world_size"] == 2
            assert any("addmm" in name or "aten::mm" in name for name in names) and any("all_reduce" in name for name in names)
        stored = f"SELECT path, uri, sha256, size_bytes FROM artifacts WHERE job_id = '{job}' ORDER BY path"
        rows = until(lambda: len(found := stack.rows(stored)) == 2 and found, lambda: stack.rows(stored))
        assert [row["path"].rpartition("/")[2] for row in rows] == ["rank-0.pt.trace.json.gz", "rank-1.pt.trace.json.gz"]
        assert [row["size_bytes"] for row in rows] == [(tmp_path / f"traces/rank-{n}.pt.trace.json.gz").stat().st_size for n in (0, 1)]
        audit = f"SELECT kind, text FROM audit WHERE job_id = '{job}' AND action = 'ProfileRanks' ORDER BY kind, ranks"
        until(lambda: len(stack.rows(audit)) == 3, lambda: stack.rows(audit))
        assert [row["kind"] for row in stack.rows(audit)] == ["ended", "ended", "granted"]
        assert stack.rows(audit)[2]["text"] == "4 steps"
        unknown = stack.run("profile", job, "--ranks", "2")
        assert unknown.code == 66 and f"{job} has ranks 0 to 1, not 2" in unknown.err
    finally:
        stack.ok("cancel", job)


def test_a_user_who_reaches_the_gateway_alone_records_a_trace_and_no_other_project_does(stack: LiveStack, tmp_path: Path) -> None:
    values = dict(line.removeprefix("export ").split("=", 1) for line in stack.ok("env").splitlines())
    url = shlex.split(values["TRAINHOUSE_GATEWAY_URL"])[0]

    def trainhouse(project: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        token = stack.ok("token", "create", f"profile-{project}", "--project", project).strip()
        environment = {k: v for k, v in stack.environment.items() if not k.startswith("TRAINHOUSE_")}
        environment |= {"TRAINHOUSE_GATEWAY_URL": url, "TRAINHOUSE_GATEWAY_TOKEN": token}
        return warm_cli.run(arguments, environment, tmp_path, "", 400)

    job = json.loads(stack.ok("submit", "--no-code", "--json", "--project", "profiled", *GPT).splitlines()[0])["job_id"]
    try:
        until(lambda: (json.loads(stack.ok("status", job, "--json"))["step"] or 0) > 0, lambda: stack.ok("status", job))
        until(lambda: trainhouse("profiled", "status", job).returncode == 0, lambda: trainhouse("profiled", "status", job).stderr)
        done = trainhouse("profiled", "profile", job, "--ranks", "1", "--steps", "3", "--out", "traces")
        assert done.returncode == 0 and "rank 1: " in done.stdout and "MiB: profiles/" in done.stdout, done
        trace = trace_of(tmp_path / "traces" / "rank-1.pt.trace.json.gz")
        assert sum(str(event.get("name")).startswith("ProfilerStep#") for event in trace["traceEvents"]) == 3
        granted = f"SELECT sub, reason FROM audit WHERE job_id = '{job}' AND action = 'ProfileRanks' AND kind = 'granted'"
        rows = until(lambda: stack.rows(granted), lambda: stack.rows(granted))
        assert rows[0]["sub"] == "profile-profiled" and "the gateway local signed it for a submitter" in rows[0]["reason"], rows
        other = trainhouse("elsewhere", "profile", job)
        assert other.returncode == 66 and f"there is no job '{job}'" in other.stderr, other
        unknown = trainhouse("profiled", "profile", job, "--ranks", "2")
        assert unknown.returncode == 66 and f"{job} has ranks 0 to 1, not 2" in unknown.stderr, unknown
    finally:
        stack.ok("cancel", job)


def test_a_program_without_steps_is_refused_with_what_to_do(stack: LiveStack, tmp_path: Path) -> None:
    (tmp_path / "sleep.py").write_text("import time\ntime.sleep(3600)\n")
    job = json.loads(stack.ok("submit", "--json", "--", "python", "sleep.py", cwd=tmp_path).splitlines()[0])["job_id"]
    try:
        until(lambda: json.loads(stack.ok("status", job, "--json"))["state"] == "RUNNING", lambda: stack.ok("status", job))
        refused = stack.run("profile", job)
        assert refused.code == 66 and "`Session.start().steps(total)`" in refused.err, refused.err
    finally:
        stack.ok("cancel", job)
