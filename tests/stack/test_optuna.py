"""Optuna from many processes over two gateways, of which one is killed again and again: no trial lost, doubled, or without its run.

One gateway is a process of these tests on the shared stack, so that it can be killed.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import optuna
import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.client import optuna_storage
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.gateway.auth import tokens

pytestmark = pytest.mark.stack
WORKERS, TRIALS = 8, 25
# A stack may be used again, and a storage's name is its own for ever.
OURS = secrets.token_hex(4)
WORKER = """
import os, sys
import optuna
from trainhouse.client import optuna_storage

optuna.logging.set_verbosity(optuna.logging.WARNING)
url, storage, trials, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def objective(trial):
    x, y = trial.suggest_float("x", -5, 5), trial.suggest_float("y", -5, 5)
    trial.set_user_attr("worker", seed)
    trial.report(x, 0)
    return x * x + y * y

study = optuna.load_study(
    study_name="sphere", storage=optuna_storage(storage, gateway=url, patience_s=400), sampler=optuna.samplers.TPESampler(seed=seed)
)
print("begun", flush=True)
study.optimize(objective, n_trials=trials)
"""


@dataclass
class KilledGateway:
    """A gateway on a port that stays; `restart` kills it, and starts the next one."""

    stack: LiveStack
    log: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def start(self) -> None:
        named = {"TRAINHOUSE_CONFIG": str(self.stack.data_dir / "trainhouse.toml"), "TRAINHOUSE_GATEWAY_PORT": str(self.port)}
        command = [sys.executable, "-m", "trainhouse.cli.main", "run", "gateway"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self.stack.environment | named, stdout=log, stderr=log, preexec_fn=die_with_parent()
            )
        until(self.answers, lambda: self.log.read_text()[-3000:])

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module")
def gateway(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KilledGateway]:
    made = KilledGateway(stack, tmp_path_factory.mktemp("gateway") / "log")
    made.start()
    yield made
    made.kill()


def settings(stack: LiveStack) -> tuple[str, str]:
    """The stack's own gateway, and a token for it."""
    found = tomllib.loads((stack.data_dir / "trainhouse.toml").read_text())["gateway"]
    now_s = int(time.time())
    key = Path(found["key_file"]).read_bytes().strip()
    return found["url"], tokens.issue(key, "ada", ["submitter"], ["*"], now_s=now_s, expires_s=now_s + 7200)


@dataclass
class Workers:
    """Processes that run trials of one study."""

    storage: str
    token: str
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, url: str, trials: int) -> subprocess.Popen[bytes]:
        seed = len(self.processes)
        command = [sys.executable, "-c", WORKER, url, self.storage, str(trials), str(seed)]
        environment = os.environ | {"TRAINHOUSE_GATEWAY_TOKEN": self.token}
        with (self.folder / f"worker-{seed}").open("wb") as log:
            made = subprocess.Popen(command, env=environment, stdout=log, stderr=log, preexec_fn=die_with_parent())
        self.processes.append(made)
        return made

    def begun(self, seed: int) -> bool:
        return b"begun" in (self.folder / f"worker-{seed}").read_bytes()

    def logs(self) -> str:
        return "\n".join((self.folder / f"worker-{seed}").read_text()[-1500:] for seed in range(len(self.processes)))


def test_no_trial_is_lost_or_doubled_while_workers_and_a_gateway_are_killed(
    stack: LiveStack, gateway: KilledGateway, tmp_path: Path
) -> None:
    url, token = settings(stack)
    storage = f"killed-{OURS}"
    created = optuna.create_study(study_name="sphere", storage=optuna_storage(storage, gateway=url, token=token))
    workers = Workers(storage, token, tmp_path)
    kept = [workers.start((url, gateway.url)[n % 2], TRIALS) for n in range(WORKERS)]
    victim = workers.start(gateway.url, 10_000)
    until(lambda: all(map(workers.begun, range(WORKERS + 1))), workers.logs)
    for _ in range(3):
        done = len(created.get_trials(deepcopy=False))
        until(lambda done=done: len(created.get_trials(deepcopy=False)) > done + 10, workers.logs)  # type: ignore[misc]
        gateway.kill()
        gateway.start()
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    until(lambda: all(process.poll() is not None for process in kept), workers.logs)
    assert [process.returncode for process in kept] == [0] * WORKERS, workers.logs()
    studies = [
        optuna.load_study(study_name="sphere", storage=optuna_storage(storage, gateway=one, token=token)) for one in (url, gateway.url)
    ]
    found = studies[0].get_trials()
    assert found == studies[1].get_trials()
    assert [trial.number for trial in found] == list(range(len(found)))
    ended = [trial for trial in found if trial.state == optuna.trial.TrialState.COMPLETE]
    by_worker = [sum(trial.user_attrs.get("worker") == seed for trial in ended) for seed in range(WORKERS)]
    assert by_worker == [TRIALS] * WORKERS, "each of its trials, once"
    assert len(found) - len(ended) <= 1, "the one that its worker was killed in"
    _check_runs(stack, ended)


def _check_runs(stack: LiveStack, ended: list[optuna.trial.FrozenTrial]) -> None:
    """Each trial is one run, with its parameters, values and state, and one point of each."""
    experiment = "experiment_id IN (SELECT experiment_id FROM experiments WHERE name = 'default/sphere')"
    of = f"job_id IN (SELECT job_id FROM tags WHERE key = 'optuna.storage' AND value = 'killed-{OURS}')"
    until(lambda: len(stack.rows(f"SELECT job_id FROM jobs WHERE {of} AND state = 'SUCCEEDED'")) >= len(ended), "runs of all trials")
    runs = stack.rows(f"SELECT job_id, name, project, source FROM jobs WHERE {of}")
    assert sorted(run["name"] for run in runs) == sorted(f"trial {trial.number}" for trial in ended)
    assert {(run["project"], run["source"]) for run in runs} == {("default", "tracked")}
    names = {run["job_id"]: int(run["name"].removeprefix("trial ")) for run in runs}
    params = stack.rows(f"SELECT job_id, key, value FROM parameters WHERE {of}")
    assert sorted((names[row["job_id"]], row["key"], float(row["value"])) for row in params) == sorted(
        (trial.number, key, value) for trial in ended for key, value in trial.params.items()
    )
    expected = sorted(
        (trial.number, key, value) for trial in ended for key, value in (("intermediate_value", trial.params["x"]), ("value", trial.value))
    )
    sql = f"SELECT job_id, metric, value FROM step_metrics WHERE {of}"
    until(lambda: len(stack.rows(sql)) >= len(expected), "points of all trials")
    assert sorted((names[row["job_id"]], row["metric"], row["value"]) for row in stack.rows(sql)) == expected, "each once"
    assert len(stack.rows(f"SELECT job_id FROM experiment_runs WHERE {experiment} AND {of}")) == len(ended)
