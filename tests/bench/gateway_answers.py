"""How fast the gateway answers with 40 scheduled jobs and 40 tracked runs, beside MLflow's own server on SQLite with as many runs.

Both servers have the same runs, made by the same requests of MLflow's API, and are asked by the same client: one connection, one request
after the other, the two in turn so that both meet the same machine. CPU is what the kernel counted for the processes that answer: the
gateway and the engine (which ingests meanwhile); of MLflow's server all its processes.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.bench import report
from tests.bench.idle_stack import _cpu_s, _part
from tests.bench.peers import environment
from tests.bench.stack import BenchStack, bench_stack
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.supervision import supervisor_client
from trainhouse.events import JobStatus, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.wire import topics

RUNS = 40
TIMES, BLOCK = 200, 20
WARM = 30
UP_S = 120.0
AIMS = {"runs_get": (10.0, 30.0), "runs_search_5": (10.0, 30.0), "jobs_list_5": (10.0, 30.0), "log_metric": (4.0, None)}
Ask = Callable[[int], None]


@dataclass
class Server:
    """A server to ask: its one connection, and the processes that answer for it, by part."""

    url: str
    headers: dict[str, str]
    parts: dict[str, list[psutil.Process]]
    runs: list[str] = field(default_factory=list)
    experiment: str = ""

    def __post_init__(self) -> None:
        split = urlsplit(self.url)
        self._connection = http.client.HTTPConnection(split.hostname or "", split.port, timeout=60)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        """One request; returns the answer's bytes. Blocks. Raises RuntimeError for one that is no success."""
        content = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, content, self.headers | ({"Content-Type": "application/json"} if content else {}))
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:500]!r}")
        return answer

    def connect(self) -> None:
        """Connects anew: a server closes what was idle while the other one was asked."""
        self._connection.close()
        self._connection.connect()

    def mlflow(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One POST of MLflow's API."""
        answer: dict[str, Any] = json.loads(self.ask("POST", f"/api/2.0/mlflow/{path}", body))
        return answer

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds by part so far."""
        return {part: sum(_cpu_s(process) for process in those) for part, those in self.parts.items()}

    def fill(self) -> None:
        """Makes the runs, each with ten metrics, ten parameters and three tags."""
        self.experiment = self.mlflow("experiments/create", {"name": "answers"})["experiment_id"]
        for n in range(RUNS):
            made = self.mlflow(
                "runs/create", {"experiment_id": self.experiment, "run_name": f"run {n}", "start_time": 1_790_000_000_000 + n}
            )
            self.runs.append(made["run"]["info"]["run_id"])
            for step in range(5):
                at = {"timestamp": 1_790_000_000_000 + step, "step": step}
                metrics = [{"key": f"metric-{m}", "value": 1 / (step + m + 1)} | at for m in range(10)]
                self.mlflow("runs/log-batch", {"run_id": self.runs[-1], "metrics": metrics})
            named = {
                "params": [{"key": f"p{m}", "value": str(m)} for m in range(10)],
                "tags": [{"key": f"t{m}", "value": "x"} for m in range(3)],
            }
            self.mlflow("runs/log-batch", {"run_id": self.runs[-1]} | named)

    def asks(self) -> dict[str, Ask]:
        """The requests that both servers have."""
        search = {"experiment_ids": [self.experiment], "max_results": 5}
        return {
            "runs_get": lambda n: self._get(self.runs[n % RUNS]),
            "runs_search_5": lambda _: self._found(self.mlflow("runs/search", search)),
            "log_metric": lambda n: self._log(self.runs[n % RUNS], n),
        }

    def _get(self, run_id: str) -> None:
        data = json.loads(self.ask("GET", f"/api/2.0/mlflow/runs/get?run_id={run_id}"))["run"]["data"]
        if len(data["metrics"]) < 10 or len(data["params"]) != 10:
            raise RuntimeError(f"run {run_id} is not whole: {data}")

    def _found(self, answer: dict[str, Any]) -> None:
        if len(answer["runs"]) != 5:
            raise RuntimeError(f"a search has {len(answer['runs'])} runs, not 5")

    def _log(self, run_id: str, n: int) -> None:
        self.mlflow(
            "runs/log-metric", {"run_id": run_id, "key": "blocking", "value": 1.0 / (n + 1), "timestamp": 1_790_000_100_000 + n, "step": n}
        )


def run() -> None:
    """Prints one line a request."""
    with tempfile.TemporaryDirectory(prefix="trainhouse-bench-") as folder, bench_stack(slots=1) as stack, _mlflow(Path(folder)) as peer:
        ours = _ours(stack)
        _jobs(stack)
        report.note(f"making {RUNS} runs in both servers …")
        ours.fill()
        peer.fill()
        engine = Server(stack.environment["TRAINHOUSE_CLICKHOUSE_URL"], _engine_headers(stack), {"engine": ours.parts["engine"]})
        alone: dict[str, tuple[Server, Ask]] = {
            "jobs_list_5": (ours, lambda _: _listed(ours)),
            "engine_select_1": (engine, lambda _: _selected(engine)),
        }
        for name, ask in ours.asks().items():
            _measured(name, ours, ask, peer, peer.asks()[name])
        for name, (server, ask) in alone.items():
            _measured(name, server, ask)


def _measured(name: str, server: Server, ask: Ask, peer: Server | None = None, peer_ask: Ask | None = None) -> None:
    mine, others = Timed(server), None if peer is None else Timed(peer)
    for each in (server, peer):
        if each is not None:
            each.connect()
    for n in range(WARM):
        ask(n)
        if peer_ask is not None:
            peer_ask(n)
    for first in range(WARM, WARM + TIMES, BLOCK):
        mine.block(ask, first)
        if others is not None and peer_ask is not None:
            others.block(peer_ask, first)
    aims = AIMS.get(name)
    more = {} if aims is None else {"aim_p50": aims[0]} | ({} if aims[1] is None else {"aim_p99": aims[1]})
    beside = {} if others is None else {"peer": {"mlflow_sqlite": others.figures()}}
    report.line(f"gateway_{name}", unit="ms", jobs=RUNS, runs=RUNS, **mine.figures(), **more, **beside)


class Timed:
    """Times of one request at one server, and the CPU that its processes took meanwhile."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._took_ms: list[float] = []
        self._cpu_ms = dict.fromkeys(server.parts, 0.0)

    def block(self, ask: Ask, first: int) -> None:
        """One block of requests."""
        self._server.connect()
        before = self._server.cpu_s()
        for n in range(first, first + BLOCK):
            began_s = time.perf_counter()
            ask(n)
            self._took_ms.append((time.perf_counter() - began_s) * 1000)
        for part, now_s in self._server.cpu_s().items():
            self._cpu_ms[part] += (now_s - before[part]) * 1000

    def figures(self) -> dict[str, Any]:
        """p50 and p99 of the times, and CPU ms a request by part."""
        cpu = {part: used / len(self._took_ms) for part, used in self._cpu_ms.items()}
        return {"p50": report.percentile(self._took_ms, 50), "p99": report.percentile(self._took_ms, 99), "cpu": cpu}


def _ours(stack: BenchStack) -> Server:
    supervisor = psutil.Process(supervisor_client.supervisor_pid(StackFolder(stack.data_dir)))
    named: dict[str, list[psutil.Process]] = {}
    for process in supervisor.children(recursive=True):
        named.setdefault(_part(process.cmdline()), []).append(process)
    token = {"Authorization": f"Bearer {stack.environment['TRAINHOUSE_GATEWAY_TOKEN']}"}
    parts = {"gateway": named["gateway"], "engine": named["projector"]}
    return Server(stack.environment["TRAINHOUSE_GATEWAY_URL"], token, parts)


def _engine_headers(stack: BenchStack) -> dict[str, str]:
    from trainhouse.projections.settings import ClickHouseSettings

    prefix = "TRAINHOUSE_CLICKHOUSE_"
    named = {name.removeprefix(prefix).lower(): value for name, value in stack.environment.items() if name.startswith(prefix)}
    return dict(ClickHouseSettings.model_validate(named).headers)


def _jobs(stack: BenchStack) -> None:
    producer = EventProducer(stack.kafka)
    for n in range(RUNS):
        at_ms = 1_790_000_000_000 + n
        who = {
            "job_id": f"job-{n}",
            "status_seq": 1,
            "state": "RUNNING",
            "name": "gpt",
            "project": "default",
            "user": "ana",
            "pool": "default",
        }
        status = JobStatus.model_validate(who | {"submitted_at_ms": at_ms, "updated_at_ms": at_ms})
        producer.send(topics.STATUS, envelope_of(status, id=f"bench-{n}", source="trainhouse/bench", now_ms=at_ms))
    producer.flush()


def _listed(server: Server) -> None:
    if len(json.loads(server.ask("GET", "/v1/training-jobs?limit=5"))["items"]) != 5:
        raise RuntimeError("the list has not five jobs")


def _selected(server: Server) -> None:
    server.ask("GET", "/?query=SELECT%201")


@contextmanager
def _mlflow(folder: Path) -> Iterator[Server]:
    """MLflow's server on SQLite, from the peers' own environment."""
    port = free_port()
    python = str(environment.python(environment.TRACKING))
    store = f"sqlite:///{folder}/mlflow.db"
    command = [python, "-m", "mlflow", "server", "--backend-store-uri", store, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    with (folder / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        _answers(port, process, folder / "mlflow.log")
        root = psutil.Process(process.pid)
        yield Server(f"http://127.0.0.1:{port}", {}, {"server": [root, *root.children(recursive=True)]})
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    raise RuntimeError(f"MLflow's server does not answer: {log.read_text()[-2000:]}")
