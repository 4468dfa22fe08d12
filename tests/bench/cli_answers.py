"""CPU of commands that ask something, from the tables and over the gateway, beside those of peers against servers of their own.

CPU is what the kernel counted for the command's own process, user and system together: other work on the machine matters little, and what
it does matter shows in `python_cpu_s`, an interpreter that does nothing, measured with each way. The median leaves out the first run, in
which modules are compiled. What fails, as a query that takes too long beside other work, is a line of its own and ends nothing.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench import report
from tests.bench.gateway_answers import _mlflow
from tests.bench.peers import environment
from tests.bench.stack import BenchStack, bench_stack
from trainhouse.deploy.local.free_ports import free_port

TIMES = 3
PEERS_S = 420.0
"""Seconds after which no further peer begins: what others need to start is not ours to bound."""
AIM_S = 0.3
UP_S = 300.0
PYTHON = (sys.executable, "-c", "pass")
FILLED = "answers"
TRAINS = ("python", "-m", "trainhouse.workers.examples.gpt", "--width", "64", "--checkpoint-every", "5", "--steps", "5")
CLI = (sys.executable, "-m", "trainhouse.cli.main")
GATEWAY = ("TRAINHOUSE_GATEWAY_URL", "TRAINHOUSE_GATEWAY_TOKEN")


def run() -> None:
    """Prints one line a command."""
    with bench_stack(slots=1) as stack:
        ended, waiting = _jobs(stack)
        asked = commands(ended, waiting, _filled(stack, ended))
        ours = _compiled(stack.environment)
        laptop = {name: value for name, value in ours.items() if not name.startswith("TRAINHOUSE_") or name in GATEWAY}
        for way, found in (("tables", ours), ("gateway", laptop)):
            python_s = cpu_s(PYTHON, found)
            for name, arguments in asked.items():
                if way == "tables" or name not in ON_THE_MACHINE:
                    _line(name, (*CLI, *arguments), found, python_s, way=way)
    until_s = time.monotonic() + PEERS_S
    for peer in (_of_mlflow, _of_dstack, _of_sky):
        name = peer.__name__.removeprefix("_of_")
        if time.monotonic() > until_s:
            report.line("cli_answers", peer=name, failed="no time was left for it")
            continue
        try:
            peer()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            report.line("cli_answers", peer=name, failed=str(error)[-500:])


# These read topics or the object store themselves, and need their addresses.
ON_THE_MACHINE = frozenset(
    {
        *("ps", "env", "credentials list", "project list", "data list", "data show", "policy show", "token show", "topics"),
        *("artifact list", "models list", "models show", "upgrade status"),
    }
)


def commands(ended: str, waiting: str, model: str) -> dict[str, tuple[str, ...]]:
    """What is asked, by the name that its line has."""
    return {
        "status": ("status",),
        "status JOB": ("status", ended),
        "events": ("events", ended),
        "logs": ("logs", ended),
        "why": ("why", waiting),
        "checkpoints": ("checkpoints", ended),
        "nodes": ("nodes",),
        "alerts": ("alerts",),
        "slo": ("slo",),
        "tag": ("tag", ended),
        "audit list": ("audit", "list"),
        "report health": ("report", "health"),
        "report list": ("report", "list"),
        "project list": ("project", "list"),
        "data list": ("data", "list"),
        "data show": ("data", "show", f"{FILLED}@1.0.0"),
        "artifact list": ("artifact", "list"),
        "models list": ("models", "list"),
        "models show": ("models", "show", model),
        "topics": ("topics",),
        "upgrade status": ("upgrade", "status"),
        "policy show": ("policy", "show", "default"),
        "token show": ("token", "show"),
        "pool show": ("pool", "show"),
        "sql": ("sql", "SELECT 1"),
        "ps": ("ps",),
        "env": ("env",),
        "credentials list": ("credentials", "list"),
    }


def cpu_s(command: Sequence[str], environment_of: Mapping[str, str]) -> float:
    """User and system seconds of a command's process, the median of TIMES. Raises RuntimeError where it fails."""
    taken = []
    for _ in range(TIMES):
        process = subprocess.Popen(command, env=dict(environment_of), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        words = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {process.returncode}\n{words[-1000:]}")
        taken.append(used.ru_utime + used.ru_stime)
    return statistics.median(taken)


def _line(name: str, command: Sequence[str], environment_of: Mapping[str, str], python_s: float | None = None, **more: str) -> None:
    try:
        python_s = cpu_s(PYTHON, environment_of) if python_s is None else python_s
        report.line("cli_answers", command=name, **more, cpu_s=cpu_s(command, environment_of), python_cpu_s=python_s, aim_s=AIM_S)
    except RuntimeError as error:  # one that fails takes no line from the others
        report.line("cli_answers", command=name, **more, failed=str(error)[-500:])


def _compiled(found: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _jobs(stack: BenchStack) -> tuple[str, str]:
    """One job that has ended, with a checkpoint, and one that waits and whose reason is known."""
    ended = stack.trainhouse("submit", "--wait", "--quiet", "--no-code", "--", *TRAINS).split()[0]
    stack.trainhouse("submit", "--no-code", "--", "sleep", "100000")
    waiting = stack.trainhouse("submit", "--no-code", "--", "sleep", "1").split()[0]
    deadline = time.monotonic() + UP_S
    while not stack.rows(f"SELECT 1 FROM explanations WHERE job_id = '{waiting}'") and time.monotonic() < deadline:
        time.sleep(0.5)
    return ended, waiting


def _filled(stack: BenchStack, job: str) -> str:
    """A dataset, an artifact and a model of a job, each with one version; returns the model's name."""
    stack.trainhouse("models", "register", FILLED, job)
    with tempfile.TemporaryDirectory(prefix="trainhouse-bench-") as folder:
        (Path(folder) / "lines.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
        stack.trainhouse("data", "publish", FILLED, f"{folder}/lines.jsonl", "--version", "1.0.0")
        stack.trainhouse("artifact", "put", FILLED, f"{folder}/lines.jsonl")
    return FILLED


def _of_mlflow() -> None:
    with tempfile.TemporaryDirectory(prefix="trainhouse-bench-") as folder, _mlflow(Path(folder)) as server:
        server.fill()
        command = (str(environment.python(environment.TRACKING)), "-m", "mlflow", "runs", "list", "--experiment-id", server.experiment)
        _line("mlflow runs list", command, _compiled(os.environ) | {"MLFLOW_TRACKING_URI": server.url}, peer="mlflow")


def _of_dstack() -> None:
    port, token = free_port(), "bench"
    tool = environment.python(environment.CONSOLES).parent / "dstack"
    with _home() as home:
        config = {"projects": [{"name": "main", "url": f"http://127.0.0.1:{port}", "token": token, "default": True}]}
        (Path(home["HOME"]) / ".dstack").mkdir()
        (Path(home["HOME"]) / ".dstack" / "config.yml").write_text(json.dumps(config))
        log = Path(home["HOME"]) / "server.log"
        server = [str(tool), "server", "--port", str(port), "--token", token, "--yes"]
        with log.open("wb") as written:
            process = subprocess.Popen(server, env=home, stdout=written, stderr=written)
        try:
            _until(lambda: subprocess.run([tool, "ps"], env=home, capture_output=True, check=False).returncode == 0, log)
            _line("dstack ps", (str(tool), "ps"), home, peer="dstack")
        finally:
            process.terminate()
            process.wait(60)


def _of_sky() -> None:
    tool = environment.python(environment.CONSOLES).parent / "sky"
    with _home() as home:
        # Into a file: the server that it leaves behind would keep a pipe open.
        with (Path(home["HOME"]) / "server.log").open("wb") as log:
            subprocess.run([tool, "api", "start"], env=home, stdout=log, stderr=log, check=True, timeout=UP_S)
        try:
            _line("sky status", (str(tool), "status"), home, peer="sky")
        finally:
            subprocess.run([tool, "api", "stop"], env=home, capture_output=True, check=False, timeout=UP_S)


@contextmanager
def _home() -> Iterator[dict[str, str]]:
    """An environment with a home folder of its own, in which nothing is reported to the tool's makers."""
    with tempfile.TemporaryDirectory(prefix="trainhouse-bench-") as folder:
        yield _compiled(os.environ) | {"HOME": folder, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1", "DSTACK_ENABLE_PROMETHEUS_METRICS": ""}


def _until(answers: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + UP_S
    while not answers():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no answer within {UP_S:.0f} s: {log.read_text()[-1000:]}")
        time.sleep(0.5)
