"""`trainhouse models evaluate` and `compare`: a version through the program, the store and a registry's machine, without servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import Result
from typer.testing import CliRunner

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.registry_requests import NAME, OF_MODEL, PROJECT, Registry, evaluated, facts_of, observed
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.lease.lease_facts import owned
from trainhouse.checkpointing.models.version_content import VersionParts, prepare_version
from trainhouse.cli.main import build
from trainhouse.cli.models import evidence_commands
from trainhouse.client import ChangeRefusedError
from trainhouse.client.models import registry_access
from trainhouse.client.models.registry_access import KnownModel
from trainhouse.events import (
    ModelCompared,
    ModelEvaluated,
    ModelEvaluationStarted,
    ModelGate,
    ModelGateApplied,
    ModelPromoted,
    ModelRegistered,
    ModelRequestRefused,
)
from trainhouse.events.model.artifact_keys import object_key
from trainhouse.events.model.model_gate import GateSuite, MetricLimits
from trainhouse.events.model.resume_ref import parse_resume_from
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.scheduler.core.registry.gate_conditions import conditions
from trainhouse.scheduler.core.registry.registry_state import EvaluationJob
from trainhouse.workers.data.shards import ShardWriter

SAMPLES = 400
JOB = "train-1"
PROGRAM = """
import json
import torch
from safetensors.torch import load_file


def load(path, device):
    model = torch.nn.Linear(8, 2)
    model.load_state_dict(load_file(path))
    return model.to(device)


def decode(sample):
    row = json.loads(sample["json"])
    return {"input": torch.tensor(row["x"]), "target": row["y"], "lang": row["lang"]}
"""


@dataclass
class Access:
    """A registry's machine as commands reach it."""

    registry: Registry = field(default_factory=lambda: Registry(now_ms=wall_ms()))
    asked: int = 0

    def model(self, project: str, name: str) -> KnownModel:
        found = self.registry.state.model(project, name)
        if found is None:
            raise registry_access._unknown(project, name)
        return registry_access._of_entry(found)

    def record(self, request: ModelEvaluated | ModelCompared, timeout_s: float) -> None:
        self.asked += 1
        for each in self.registry.ask(request):
            if isinstance(each, ModelRequestRefused):
                raise ChangeRefusedError(each.reason)


Run = Callable[..., Result]


@pytest.fixture
def access() -> Access:
    return Access()


@pytest.fixture
def objects(access: Access) -> MemoryObjectStore:
    """A store with two versions of a classifier: of one that is nearly right, and of one that is wrong about a fifth."""
    objects = MemoryObjectStore()
    owned(objects, JOB, PROJECT, 0)
    right = {"weight": torch.stack([-torch.ones(8), torch.ones(8)]), "bias": torch.zeros(2)}
    wrong = {"weight": right["weight"], "bias": torch.tensor([2.0, -2.0])}
    checkpointer = Checkpointer(CheckpointerSettings(JOB, 1, 0, "spec"), objects)
    for number, state in enumerate((right, wrong), 1):
        checkpointer.save({"model": state}, {}, 10 * number, 1.0)
        prepared = prepare_version(objects, PROJECT, parse_resume_from(f"{JOB}@step:{10 * number}"), VersionParts())
        request_id = f"register-{number}"
        asked = ModelRegistered(**OF_MODEL, content=prepared.sha256, user="ada")
        access.registry.ask(asked, request_id)
        facts = facts_of(number, content=prepared.sha256, job_id=JOB, splits=(), data=())
        access.registry.ask(observed(request_id, facts))
    return objects


@pytest.fixture
def run(access: Access, objects: MemoryObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder with shards, the program and a description."""
    (tmp_path / "shards").mkdir()
    generator = torch.Generator().manual_seed(1)
    with ShardWriter(tmp_path / "shards") as shards:
        for n in range(SAMPLES):
            x = torch.randn(8, generator=generator)
            row = {"x": x.tolist(), "y": int(x.sum() > 0), "lang": "de" if n % 3 else "en"}
            shards.add(f"s{n}", {"json": json.dumps(row).encode()})
        shards.cut()
    (tmp_path / "evidence_classifier.py").write_text(PROGRAM)
    described(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINHOUSE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(evidence_commands, "_access", lambda: access)
    monkeypatch.setattr("trainhouse.cli.data.dataset_access.object_store", lambda: objects)
    return lambda *words: CliRunner().invoke(build("models"), ["models", *words])


def described(where: Path, **changes: Any) -> None:
    """Writes the description of the evaluation."""
    fields = {"suite": "signs", "kind": "classification", "model": "model.safetensors", "program": "evidence_classifier"}
    more: dict[str, Any] = {"folder": "shards", "batch_size": 64, "seed": 3, "groups": ["lang"]}
    (where / "evaluation.yaml").write_text(yaml.safe_dump(fields | more | changes))


def evaluate(run: Run, version: str, *more: str) -> Result:
    return run("evaluate", f"{PROJECT}/{NAME}@{version}", "--spec", "evaluation.yaml", *more)


def test_versions_are_evaluated_compared_and_promoted_on_what_was_recorded(
    run: Run, access: Access, objects: MemoryObjectStore, tmp_path: Path
) -> None:
    first = evaluate(run, "1", "--out", "kept")
    assert first.exit_code == 0, first.output + str(first.exception)
    assert "accuracy" in first.output and "of suite signs recorded" in first.output
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"result.json", "samples.parquet"}
    [recorded] = access.registry.model.versions[0].evaluations
    assert recorded.content == access.registry.model.versions[0].facts.content
    assert object_key(PROJECT, recorded.document) in {stat.key for stat in objects.list("")}
    again = evaluate(run, "1")
    assert again.exit_code == 0 and "was recorded before" in again.output and access.asked == 1
    second = evaluate(run, "staging", "--json")
    assert second.exit_code == 0, second.output
    row = json.loads(second.stdout)
    assert (row["version"], row["new"], row["metrics"]["accuracy"]["value"] < 0.9) == (2, True, True)

    worse = run("compare", f"{PROJECT}/{NAME}@2", "--with", "1")
    assert worse.exit_code == 1, worse.output
    assert "accuracy lang=de" in worse.output and "verdict: worse; groups: worse; recorded" in worse.output
    assert max(map(len, worse.output.splitlines())) <= 80, worse.output
    asked = access.asked
    same = run("compare", f"{PROJECT}/{NAME}@2", "--with", "1")
    assert "was recorded before" in same.output and access.asked == asked
    limits = MetricLimits.model_validate({"at_least": 0.9, "against_champion": "not worse", "margin": 0.5})
    suites = (GateSuite(suite="signs", metrics={"accuracy": limits}),)
    access.registry.ask(ModelGateApplied(**OF_MODEL, gate=ModelGate(approvals=0, suites=suites), user="ada"))
    assert any(isinstance(each, ModelPromoted) for each in access.registry.promote(1)), "there is no champion to compare with"
    assert not any(isinstance(each, ModelPromoted) for each in access.registry.promote(2))
    with_champion = run("compare", f"{PROJECT}/{NAME}@2")
    assert with_champion.exit_code == 1 and "not worse" in with_champion.output, "the gate's margin holds where none is named"

    kept = objects.get(object_key(PROJECT, recorded.document))
    objects.put(object_key(PROJECT, recorded.document), kept + b" ")
    damaged = run("compare", f"{PROJECT}/{NAME}@2")
    assert damaged.exit_code == 1 and "has other bytes than its name says" in str(damaged.exception)
    objects.delete(object_key(PROJECT, recorded.document))
    gone = run("compare", f"{PROJECT}/{NAME}@2")
    assert gone.exit_code == 1 and "is not in the store" in str(gone.exception)


@pytest.mark.parametrize(
    ("changes", "words", "text"),
    [
        ({}, ("evaluate", f"{PROJECT}/{NAME}@7"), "has no version 7"),
        ({}, ("evaluate", f"{PROJECT}/other@1"), f"project {PROJECT} has no model other"),
        ({}, ("evaluate", NAME), "names no version of a model"),
        ({"split": "test", "folder": None}, ("evaluate", f"{PROJECT}/{NAME}@1"), "name the version of the dataset, --data NAME@VERSION"),
        ({"model": "../x"}, ("evaluate", f"{PROJECT}/{NAME}@1"), "a path below the version's files"),
        ({"version": "0" * 64}, ("evaluate", f"{PROJECT}/{NAME}@1"), "leave `version` out"),
        ({"suit": "x"}, ("evaluate", f"{PROJECT}/{NAME}@1"), "suit: Extra inputs are not permitted"),
        ({"program": "no_such_module"}, ("evaluate", f"{PROJECT}/{NAME}@1"), "nothing was recorded"),
        ({}, ("compare", f"{PROJECT}/{NAME}@1"), "has no champion"),
        ({}, ("compare", f"{PROJECT}/{NAME}@1", "--with", "1"), "compared with itself"),
        ({}, ("compare", f"{PROJECT}/{NAME}@1", "--with", "2"), "no results of a suite on the same data"),
    ],
)
def test_what_cannot_be_evidence_is_refused_with_what_to_do(
    run: Run, access: Access, tmp_path: Path, changes: dict[str, Any], words: tuple[str, ...], text: str
) -> None:
    described(tmp_path, **changes)
    more = ("--spec", "evaluation.yaml") if words[0] == "evaluate" else ()
    done = run(*words, *more)
    assert done.exit_code != 0 and text in f"{done.output}{done.exception}", done.output + str(done.exception)
    assert access.asked == 0


def test_results_that_are_compared_are_those_that_the_gate_looks_at() -> None:
    access = Access()
    registry = access.registry
    for number in (1, 2):
        registry.register(number)
        registry.evaluate(number, 0.8)
    registry.ask(evaluated(2, 0.81, evaluated_at_ms=registry.now_ms + 3_600_000))  # of a machine whose clock is ahead
    registry.ask(evaluated(2, 0.82, evaluated_at_ms=registry.now_ms + 3_600_000))
    registry.ask(evaluated(2, 0.90, evaluated_at_ms=registry.now_ms + 1))
    model = access.model(PROJECT, NAME)
    ((first, second),) = evidence_commands._pairs(model, model.find("2"), model.find("1"), None)
    version = registry.model.get(2)
    assert version is not None
    gate = ModelGate(suites=(GateSuite(suite="accuracy", metrics={"top1": MetricLimits(at_least=0.1)}),))
    looked_at = next(each for each in conditions(gate, version, None, registry.now_ms) if each.name == "accuracy result")
    assert first.evaluation_id == "evaluation-2-0.81" and f"evaluation {first.evaluation_id}," in looked_at.detail
    assert second.evaluation_id == "evaluation-1-0.8"


EVALUATED: dict[str, Any] = {
    "suite": "signs",
    "kind": "classification",
    "program": "evidence_classifier",
    "dataset": "points@1.0.0",
    "split": "test",
}


def test_submit_starts_the_jobs_of_the_gate_once_and_prints_them(run: Run, access: Access) -> None:
    refused = run("evaluate", f"{PROJECT}/{NAME}@1", "--submit")
    assert refused.exit_code == 1 and "names no evaluation" in str(refused.exception)
    gate = ModelGate.model_validate({"evaluate": [EVALUATED, EVALUATED | {"suite": "speed", "kind": "latency"}]})
    access.registry.ask(ModelGateApplied(**OF_MODEL, gate=gate))
    done = run("evaluate", f"{PROJECT}/{NAME}@1", "--submit", "--suite", "signs", "--json")
    assert done.exit_code == 0, done.output
    [job] = access.registry.model.versions[0].jobs
    assert json.loads(done.output)["job_id"] == job.job_id and job.suite == "signs"
    both = run("evaluate", f"{PROJECT}/{NAME}@1", "--submit")
    assert both.output.count("evaluates it by suite") == 2 and len(access.registry.model.versions[0].jobs) == 2
    assert f"no job was submitted by suite signs: job {job.job_id} evaluates it by suite signs already" in both.output
    assert both.output.count("already") == 1, "that of the other suite began now"
    again = run("evaluate", f"{PROJECT}/{NAME}@1", "--submit")
    assert again.exit_code == 1 and job.job_id in str(again.exception) and str(again.exception).count("already") == 2


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_submit_says_of_a_suite_that_the_version_was_trained_on_why_it_has_no_job(
    run: Run, access: Access, options: tuple[str, ...]
) -> None:
    data = "points@sha256:" + "a" * 64
    model = access.registry.model
    facts = model.versions[0].facts.model_copy(update={"splits": (f"{data}/train",)})
    access.registry.state.put(model.put(replace(model.versions[0], facts=facts)))
    evaluations = [EVALUATED | {"dataset": data}, EVALUATED | {"suite": "seen", "dataset": data, "split": "train"}]
    access.registry.ask(ModelGateApplied(**OF_MODEL, gate=ModelGate.model_validate({"evaluate": evaluations})))
    done = run("evaluate", f"{PROJECT}/{NAME}@1", "--submit", *options)
    [job] = access.registry.model.versions[0].jobs
    assert done.exit_code == 0 and job.suite == "signs" and job.job_id in done.output
    first, second = done.output.splitlines()
    assert "signs" in first and "seen" in second and f"was trained on {data}/train" in second and "another split" in second


@pytest.mark.parametrize(
    "words",
    [("--submit", "--spec", "evaluation.yaml"), (), ("--spec", "evaluation.yaml", "--suite", "signs"), ("--submit", "--format", "torch")],
)
def test_an_evaluation_runs_here_by_a_file_or_as_jobs_of_the_gate(run: Run, access: Access, words: tuple[str, ...]) -> None:
    done = run("evaluate", f"{PROJECT}/{NAME}@1", *words)
    assert done.exit_code == 1 and "--submit" in str(done.exception) and access.asked == 0


def test_the_program_of_a_gates_job_gives_the_same_result_as_a_run_here(
    run: Run, access: Access, objects: MemoryObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a job, its program reads a folder instead of a split; all else is as in a job."""
    from trainhouse.checkpointing.lease import signed_store
    from trainhouse.scheduler.core.registry.evaluation_jobs import PROGRAM as COMMAND
    from trainhouse.workers.evaluation import __main__ as program
    from trainhouse.workers.evaluation.result import load_result

    evaluation = EVALUATED | {"model": "model.safetensors", "batch_size": 64, "seed": 3, "groups": ["lang"]}
    access.registry.ask(ModelGateApplied(**OF_MODEL, gate=ModelGate.model_validate({"evaluate": [evaluation]})))
    run("evaluate", f"{PROJECT}/{NAME}@1", "--submit")
    [job] = [each for each in access.registry.decisions if isinstance(each, ModelEvaluationStarted)]
    *command, described_as = job.spec.runtime.command
    assert tuple(command) == COMMAND
    given = json.loads(described_as)
    given["evaluation"] = {name: value for name, value in given["evaluation"].items() if name != "split"} | {"folder": "shards"}
    monkeypatch.setattr(signed_store, "open_artifact_store", lambda settings: objects)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert program.main(["version", json.dumps(given), "--out", "job"]) == 0
    here = run("evaluate", f"{PROJECT}/{NAME}@1", "--spec", "evaluation.yaml", "--out", "here")
    assert here.exit_code == 0, here.output
    assert load_result(tmp_path / "job" / "result.json") == load_result(tmp_path / "here" / "result.json")
    assert not list(tmp_path.glob("version-*")), "the files are gone"
    assert program.main(["version", "{}"]) == 2, "what describes no version is refused"


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({}, "job m-1 evaluates it by suite signs"),
        ({"evaluation_id": "e-1"}, "job m-1 by suite signs was submitted, and has ended already: result e-1"),
        ({"reason": "it is FAILED: x"}, "job m-1 by suite signs was submitted, and has ended already: no result: it is FAILED: x"),
    ],
)
def test_what_is_so_of_a_job_that_was_asked_for(ended: dict[str, str], words: str) -> None:
    assert evidence_commands.job_words(EvaluationJob("signs", 1, "m-1", "", **ended)) == words


def test_a_job_that_ended_meanwhile_is_said_with_its_outcome(run: Run, access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    access.registry.ask(ModelGateApplied(**OF_MODEL, gate=ModelGate.model_validate({"evaluate": [EVALUATED]})))
    asked, read = access.record, access.model

    def ended(model: KnownModel) -> KnownModel:
        first, *others = model.versions
        return replace(
            model, versions=(replace(first, jobs=tuple(replace(each, reason="it is FAILED: x") for each in first.jobs)), *others)
        )

    def record(request: ModelEvaluated | ModelCompared, timeout_s: float) -> None:
        asked(request, timeout_s)
        monkeypatch.setattr(access, "model", lambda project, name: ended(read(project, name)))

    monkeypatch.setattr(access, "record", record)
    done = run("evaluate", f"{PROJECT}/{NAME}@1", "--submit")
    [job] = access.registry.model.versions[0].jobs
    assert done.exit_code == 0 and f"job {job.job_id} by suite signs was submitted" in done.output and "no result" in done.output
