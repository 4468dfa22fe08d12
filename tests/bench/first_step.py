"""Submit to the first training step of a 2-rank DDP job, against `torchrun --nproc-per-node 2` of the same script."""

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import report
from tests.bench.stack import BenchStack, bench_stack

SCRIPT = Path(__file__).parent / "peers" / "first_step.py"
ROUNDS = 5
STARTS = 15
ONE_STEP = """
import time, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
print(time.time())
"""


def run() -> None:
    """Prints the median of each, in the same run, on the same machine; then what confinement adds to a warm start."""
    ours_s, theirs_s = [], []
    # A confined job sees the folder of the script only where its node shows it.
    with bench_stack(slots=2, TRAINHOUSE_AGENT_JOB_PATHS=str(SCRIPT.parent)) as stack:
        for number in range(ROUNDS):
            ours_s.append(_ours(stack, f"first-step-{number}"))
            theirs_s.append(_torchrun())
    ours, theirs = statistics.median(ours_s), statistics.median(theirs_s)
    report.line(
        "submit_to_first_step",
        unit="s",
        p50=ours,
        worst=max(ours_s),
        peer={"torchrun_p50": theirs},
        times_faster=theirs / ours,
        aim_times_faster=10.0,
    )
    _confinement()


def _confinement() -> None:
    """From the order to a rank's first step of AdamW, forked from one warm process, with and without confinement by turns."""
    from tests.integration.confined_support import confinement_of
    from tests.integration.launcher_support import Attempt
    from tests.support.waiting import until
    from trainhouse.workers.launcher import Launcher, attempt_alive

    launcher = Launcher(warm_wait_s=300)
    launcher.prepare()
    until(launcher.warm_ready, timeout_s=300)
    took: dict[bool, list[float]] = {True: [], False: []}
    with TemporaryDirectory() as folder:
        for number in range(2 * STARTS):
            confined = bool(number % 2)
            attempt = Attempt(Path(folder) / str(number) / "1", ONE_STEP)
            confinement = confinement_of(attempt) if confined else None
            begin = time.time()
            launcher.start(attempt.paths, attempt.launches(), attempt.store, confinement)
            if attempt.exit_of().exit_code != 0:
                raise RuntimeError(attempt.stderr())
            took[confined].append(float(attempt.stdout()) - begin)
            until(lambda attempt=attempt: not attempt_alive(attempt.paths))
            attempt.close()
    launcher.close()
    free, confined_s = statistics.median(took[False]), statistics.median(took[True])
    report.line(
        "start_to_first_step_confined",
        unit="s",
        p50=confined_s,
        worst=max(took[True]),
        unconfined_p50=free,
        added_ms=1000 * (confined_s - free),
        aim_added_ms=100,
        aim_s=0.3,
    )


def _ours(stack: BenchStack, job_id: str) -> float:
    """Seconds from producing the submission to rank 0's first finished step; the submitting process is up already."""
    from trainhouse.events import JobSpec, JobSubmitted, Runtime, envelope_of
    from trainhouse.events.bus.kafka import EventProducer
    from trainhouse.events.wire import topics

    producer = EventProducer(stack.kafka, **{"linger.ms": 0})
    producer.poll(1.0)
    spec = JobSpec.model_validate({"gang": 2, "runtime": Runtime(command=("python", str(SCRIPT)))})
    begin = time.time()
    producer.send(topics.JOBS, envelope_of(JobSubmitted(job_id=job_id, spec=spec), id=job_id, source="bench", now_ms=int(begin * 1000)))
    # Its lines may be in the tables after its status is.
    succeeded = f"SELECT job_id FROM jobs WHERE job_id = '{job_id}' AND state = 'SUCCEEDED'"
    told = f"SELECT line FROM logs WHERE job_id = '{job_id}' AND startsWith(line, 'FIRST_STEP') AND job_id IN ({succeeded})"
    deadline = time.monotonic() + 180
    while not (found := stack.rows(told)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{job_id} did not succeed:\n{stack.trainhouse('logs', job_id)[-2000:]}")
        time.sleep(0.2)
    return _moment_in(found[0]["line"]) - begin


def _torchrun() -> float:
    begin = time.time()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return _moment_in(done.stdout) - begin


def _moment_in(output: str) -> float:
    """When rank 0 says that its first step was done; RuntimeError where it does not."""
    found = re.search(r"FIRST_STEP (\d+\.\d+)", output)
    if found is None:
        raise RuntimeError(f"no first step in:\n{output[-2000:]}")
    return float(found[1])
