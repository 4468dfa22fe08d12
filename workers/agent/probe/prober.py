"""The self test of a node, seen from its agent: a process of its own that tries what ranks need, for a bounded time.

Holds: whatever the test does (hang, crash, be killed, not end by SIGKILL), a NodeProbed follows that names the check at which it happened.
Never: runs a check within the agent.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import structlog

from trainhouse.events import NodeProbeAsked, NodeProbed, ProbeCheck

TIMEOUT_S = 120.0
KILLED_S = 5.0
MAX_CHECKS = 64
MAX_CHARS = 1_000
CHILD = "trainhouse.workers.agent.probe.child"
# One thread for each product: the processors are tried one by one.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ProbePlan:
    """Plan of a self test. `devices`: accelerators, in the order of their index. `store`: whether this node has its address.

    `devices_only`: the node is in use, but for these; without accelerators, what its slots are made of.
    """

    node_id: str
    folder: str
    address: str
    devices: tuple[str, ...] = ()
    store: bool = False
    devices_only: bool = False

    def of(self, devices: Sequence[str]) -> "ProbePlan":
        """Narrows the plan to these devices; none: all of it."""
        return replace(self, devices=tuple(d for d in self.devices if d in devices), devices_only=True) if devices else self


class Prober:
    """One node's. `environment` is added to the agent's own."""

    def __init__(
        self, plan: ProbePlan, environment: Mapping[str, str], clock_ms: Callable[[], int], timeout_s: float = TIMEOUT_S, child: str = CHILD
    ) -> None:
        self._plan = plan
        self._environment = environment
        self._clock_ms = clock_ms
        self._timeout_s = timeout_s
        self._child = child
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def run(self, request: NodeProbeAsked) -> NodeProbed:
        """Runs the test. Never raises. Blocks, up to its time limit; a second one waits for the first."""
        with self._lock:
            try:
                checks = self._checks(self._plan.of(request.devices))
            except OSError as error:
                checks = (ProbeCheck(name="start", passed=False, found=f"the self test could not be started: {error}"[:MAX_CHARS]),)
        passed = all(check.passed for check in checks)
        log.info("probed", passed=passed, failed=[c.name for c in checks if not c.passed])
        return NodeProbed(
            node_id=request.node_id,
            boot_id=request.boot_id,
            pool=request.pool,
            probe=request.probe,
            passed=passed,
            checks=checks,
            at_ms=self._clock_ms(),
        )

    def close(self) -> None:
        """Ends a test that runs."""
        self._closed = True
        if self._process is not None:
            _kill(self._process)

    def _checks(self, plan: ProbePlan) -> tuple[ProbeCheck, ...]:
        devices = {"CUDA_VISIBLE_DEVICES": ",".join(plan.devices)} if plan.devices else {}
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", self._child],
            env={**os.environ, **self._environment, **ONE_THREAD, **devices},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if self._closed:
            _kill(process)
        try:
            out, err = process.communicate(json.dumps(asdict(plan)), self._timeout_s)
            ended = how_it_ended(process.returncode, err)
        except subprocess.TimeoutExpired:
            _kill(process)
            out, ended = _output_so_far(process), f"it was not done after {self._timeout_s:g} s"
        return checks_of(out, ended)


def how_it_ended(code: int, error: str) -> str:
    """Empty for a clean end."""
    if code == 0:
        return ""
    how = f"exited with code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
    return f"the self test {how}: {error.strip()[-500:]}"


def checks_of(output: str, ended: str) -> tuple[ProbeCheck, ...]:
    """Parses the test's output, line by line; a check that began and has no result, or an end before the last one, has failed. Pure."""
    checks: list[ProbeCheck] = []
    begun, done = "start", False
    for line in output.splitlines():
        try:
            report = json.loads(line)
        except ValueError:
            continue  # a line that was cut off, or a library's own words
        match report:
            case {"begin": str(name)}:
                begun = name
            case {"name": str(name), "passed": bool(passed), "found": str(found)}:
                checks.append(ProbeCheck(name=name[:64], passed=passed, found=found[:MAX_CHARS]))
            case {"done": True}:
                done = True
    if not done or ended:
        found = ended or "the self test ended before it was done"
        checks.append(ProbeCheck(name=begun[:64], passed=False, found=found[:MAX_CHARS]))
    return tuple(checks[-MAX_CHECKS:])


def _output_so_far(process: "subprocess.Popen[str]") -> str:
    """Returns the output of a killed test. One that is stuck in its driver does not end by that: it is left behind."""
    try:
        return process.communicate(timeout=KILLED_S)[0]
    except subprocess.TimeoutExpired as stuck:
        return bytes(stuck.output or b"").decode("utf-8", "replace")  # bytes, also of a process that gives text


def _kill(process: "subprocess.Popen[str]") -> None:
    if process.poll() is not None:
        return  # its number may be somebody else's by now
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
