"""A profiler's trace of a session's steps: asked for by a file, recorded between boundaries, stored as an artifact."""

import contextlib
import gzip
import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.waiting import until
from tests.unit.workers.session.test_session_boundary import lines
from trainhouse.events import RankActivity
from trainhouse.events.runtime.clock import steady_s
from trainhouse.events.wire.topics import ENVIRONMENTS
from trainhouse.workers.agent.core.spool import SpoolEvent
from trainhouse.workers.agent.core.telemetry import RankIdentity
from trainhouse.workers.agent.debug.profiles import read_status
from trainhouse.workers.launcher import RankPaths
from trainhouse.workers.session import Context
from trainhouse.workers.session.errors import Stopped
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.measuring import trace_recorder
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import Unsaved
from trainhouse.workers.session.session import Session


class Run:
    """A session of rank 0, whose attempt's folder is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rank = folder / "rank-0"
        self.rank.mkdir()
        self.store = MemoryObjectStore()
        context = Context(
            job_id="j",
            epoch=1,
            spool=self.rank / "spool.jsonl",
            request=folder / "request.json",
            rank_folders=(self.rank,),
            step_figures=False,
        )
        self.session = Session(context, Gang(context), open_sink(context), Unsaved())
        self.trace = self.session._boundary.trace
        self.trace._store = lambda: self.store

    def ask(self, request: str, steps: int, *, ranks: tuple[int, ...] = (0,), for_s: float = 60.0) -> None:
        content = {"id": request, "ranks": ranks, "steps": steps, "deadline_steady_s": steady_s() + for_s}
        (self.folder / "profile.json").write_text(json.dumps(content))

    def status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.rank / "profile.json").read_text()))
        except FileNotFoundError:
            return {}

    def ended(self) -> dict[str, Any]:
        until(lambda: self.status().get("state") in ("done", "failed"))
        return self.status()

    def recorded(self) -> list[Any]:
        return [event for event in lines(self.rank, "e") if event[1] == "TraceRecorded"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(trace_recorder, "LOOK_EVERY_S", 0.0)
    here = Run(tmp_path)
    yield here
    here.session.close()


def work() -> None:
    (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item()


def test_the_next_steps_are_recorded_and_stored_as_an_artifact(run: Run) -> None:
    for step in run.session.steps(12):
        work()
        if step == 3:
            run.ask("r1", 4)
    run.session.close()
    assert run.status()["state"] == "done" and run.status()["text"].startswith("steps 4–7, ")
    ((_, _, fields, event_id),) = run.recorded()
    assert fields["path"] == "profiles/r1/rank-0.pt.trace.json.gz" and (fields["first_step"], fields["steps"]) == (4, 4)
    content = run.store.get(f"artifacts/j/{fields['sha256']}")
    assert hashlib.sha256(content).hexdigest() == fields["sha256"] and len(content) == fields["size_bytes"]
    names = [event.get("name") for event in json.loads(gzip.decompress(content))["traceEvents"]]
    assert [n for n in names if str(n).startswith("ProfilerStep#")] == [f"ProfilerStep#{n}" for n in (4, 5, 6, 7)]
    assert names.count("aten::mm") == 4
    assert sorted(p.name for p in run.rank.iterdir()) == ["profile.json", "spool.jsonl"]
    identity = RankIdentity("j", 0, 1, "n", "p", 0)  # type: ignore[arg-type]
    topic, event, own_id = identity.record_of(SpoolEvent(0, "TraceRecorded", fields, event_id), 1) or ("", None, "")
    assert topic == ENVIRONMENTS and event is not None and own_id == "j:1:0:trace:r1"


def test_a_request_is_recorded_once_and_only_by_the_ranks_it_names(run: Run) -> None:
    run.ask("other", 2, ranks=(1, 2))
    for step in run.session.steps(40):
        work()
        if step == 2:
            assert run.status() == {}
            run.ask("r1", 2)
        if step == 8:
            assert run.ended()["id"] == "r1"
        if step == 20:
            run.ask("r2", 2)
    run.session.close()
    assert [event[2]["path"].split("/")[1] for event in run.recorded()] == ["r1", "r2"]


def test_steps_that_end_early_leave_what_was_recorded(run: Run) -> None:
    for step in run.session.steps(6):
        work()
        if step == 1:
            run.ask("r1", 100)
    run.session.close()
    assert run.status()["text"].startswith("steps 2–5, ") and run.recorded()[0][2]["steps"] == 4


def test_recording_ends_with_its_time_and_what_came_too_late_is_not_begun(run: Run) -> None:
    run.ask("late", 5, for_s=-1)
    for step in run.session.steps():
        work()
        if step == 5:
            assert run.status() == {}
            run.ask("r1", 10**9, for_s=0.2)
        if run.status().get("state") == "done":
            break
    assert 0 < run.recorded()[0][2]["steps"] < 10**9


def test_a_trace_that_is_too_large_is_not_stored(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_recorder, "MAX_TRACE_BYTES", 100)
    run.ask("r1", 2)
    for _ in run.session.steps(5):
        work()
    run.session.close()
    assert run.status()["state"] == "failed" and "ask for fewer steps" in run.status()["text"]
    assert run.recorded() == [] and sorted(p.name for p in run.rank.iterdir()) == ["profile.json", "spool.jsonl"]


def test_a_store_that_refuses_ends_the_trace_alone(run: Run) -> None:
    run.trace._store = lambda: (_ for _ in ()).throw(OSError("no bucket"))  # type: ignore[assignment]
    run.ask("r1", 2)
    done = sum(1 for _ in run.session.steps(6))
    run.session.close()
    assert done == 6 and run.status() == {"id": "r1", "state": "failed", "text": "the trace of steps 0–1 was not stored: no bucket"}


@pytest.mark.parametrize("character", ["x", "\N{GRINNING FACE}", "\x01"])
def test_the_agent_reads_also_the_state_of_an_error_of_many_lines(run: Run, character: str) -> None:
    run.trace._store = lambda: (_ for _ in ()).throw(OSError("no bucket" + character * 100_000))  # type: ignore[assignment]
    run.ask("r1", 2)
    for _ in run.session.steps(6):
        work()
    run.session.close()
    seen = read_status(RankPaths(run.rank), "r1")
    assert seen.state == "failed" and seen.text.startswith("the trace of steps 0–1 was not stored: no bucket")


def test_a_program_that_profiles_itself_goes_on(run: Run) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        run.ask("r1", 2)
        done = 0
        for _ in run.session.steps(5):
            work()
            done += 1
    run.session.close()
    assert done == 5 and run.status()["state"] == "failed" and "own torch profiler is recording" in run.status()["text"]
    assert any(event.name == "aten::mm" for event in own.events() or ())


def test_the_export_is_no_part_of_a_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    counted_as: list[tuple[bool, RankActivity]] = []

    class Noted(trace_recorder._KinetoProfile):
        def export_chrome_trace(self, path: str) -> None:
            counted_as.append((threading.current_thread() is threading.main_thread(), run.session._progress.activity.now.kind))
            super().export_chrome_trace(path)

    monkeypatch.setattr(trace_recorder, "_KinetoProfile", Noted)
    run.ask("r1", 2)
    for _ in run.session.steps(6):
        work()
    run.session.close()
    assert run.status()["state"] == "done" and counted_as == [(True, RankActivity.BUSY)]


def test_time_of_the_profiler_itself_is_no_part_of_a_step(run: Run) -> None:
    run.ask("r1", 3)
    for _ in run.session.steps(6):
        work()
    assert run.session._progress.activity.now.busy_s > 0


@pytest.mark.parametrize("why", ["failed", "terminated"])
def test_a_rank_that_ends_exports_no_trace(run: Run, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exported: list[str] = []
    monkeypatch.setattr(trace_recorder._KinetoProfile, "export_chrome_trace", lambda _, path: exported.append(path))
    run.ask("r1", 100)
    boundary = run.session._boundary
    with contextlib.suppress(Stopped):
        for step in run.session.steps(50):
            work()
            if step == 5 and why == "terminated":
                boundary.on_sigterm(15, None)
            elif step == 5:
                boundary.ending(failed=True)
                break
    run.session.close()
    assert exported == [] and run.ended()["text"] == "no trace: the rank ended while it was recorded"


PROGRAM = """
import sys, json, threading
from pathlib import Path
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from tests.unit.workers.session.test_session_trace import Run, work
from trainhouse.workers.session.measuring import trace_recorder

trace_recorder.LOOK_EVERY_S = 0.0
run, order = Run(Path(sys.argv[1])), sys.argv[2]
own = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=3, active=2, repeat=1))
started, over = threading.Event(), threading.Event()

def beside():
    with profile(activities=[ProfilerActivity.CPU]) as p:
        started.set()
        over.wait()
    p.export_chrome_trace(str(run.folder / "own.json"))

thread = threading.Thread(target=beside)
for step in run.session.steps(16):
    work()
    if step == 1:
        if order == "warmup first":
            own.start(); own.step(); own.step()
        run.ask("r1", 8)
    if step == 4 and order == "ours first":
        with own:
            for _ in range(6):
                work(); own.step()
    if step == 4 and order == "another thread":
        thread.start(); started.wait()
    if step == 7 and order == "another thread":
        over.set(); thread.join()
    if order == "warmup first" and step in (3, 4, 5, 6):
        own.step()
    if step == 12:
        first = run.ended()
        run.ask("r2", 2)
run.session.close()
seen = any(e.name == "aten::mm" for e in own.events()) if order != "another thread" else (run.folder / "own.json").exists()
print(json.dumps([first, run.status(), seen]))
"""


@pytest.mark.parametrize("order", ["ours first", "warmup first", "another thread"])
def test_the_programs_own_profiler_ends_the_trace_and_nothing_else(tmp_path: Path, order: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), order], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second, own_is_whole = json.loads(done.stdout.splitlines()[-1])
    assert first["state"] == "failed" and "own torch profiler" in first["text"]
    assert second["state"] == "done" and own_is_whole
