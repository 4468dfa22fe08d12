"""`trainhouse demo`: the whole path on this machine: a stack, the example job, and what it says afterwards.

Holds: everything shown is what any user would get from the same commands; running it again uses the stack that is up.
"""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import StackDir
from trainhouse.cli.shared.output import one_line
from trainhouse.cli.stack.local_stack import PANEL

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.backend_protocol import Sql

COMMAND = ("python", "-m", "trainhouse.workers.examples.gpt", "--steps", "{steps}")
EVERY_STEPS = 100
SETTLE_S = 30.0


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("demo", rich_help_panel=PANEL)(demo)


def demo(
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimizer steps of the example.")] = 300,
    data_dir: StackDir = None,
) -> None:
    """Start a stack if none is up, train a small GPT on two ranks, follow it, and sum up.

    \b
    trainhouse demo
    """
    from trainhouse.cli.jobs.follow import follow
    from trainhouse.cli.shared import settings_lookup
    from trainhouse.client import TrainhouseClient

    root = settings_lookup.find_data_dir(data_dir, os.environ, Path.cwd())
    ensure_up(root)
    settings_lookup.use(root)
    client = TrainhouseClient.from_settings()
    job = client.submit(_spec(steps))
    say(f"submitted {job.job_id}: a byte-level GPT on two ranks, trained on the text that Python itself carries")
    last = follow(client, job, None)
    assert last is not None, "following without a time limit ends with a final status"
    if last.state != "SUCCEEDED":
        raise CliError(f"{job.job_id} is {last.state}: {one_line(last.reason)}; see `trainhouse logs {job.job_id}`", Exit.FAILED)
    settle(client.sql, str(job.job_id))
    summarize(client, str(job.job_id), root)


def ensure_up(root: Path) -> None:
    """A stack runs on the folder afterwards. Blocks until everything answers."""
    from trainhouse.deploy.local import stack, stack_state
    from trainhouse.deploy.local.errors import NotRunningError

    try:
        stack_state.ps(root)
    except NotRunningError:
        say(f"starting Kafka, an object store, ClickHouse and the control plane in {root}")
        stack.up(root, say=say)
    else:
        say(f"the stack on {root} is up already")


def _spec(steps: int) -> Any:
    import getpass

    from trainhouse.cli.jobs.spec_build import Typed, fields_of, specs_of

    typed = Typed(command=COMMAND, gang=2, hyperparameters=(f"steps={steps}",), every_steps=EVERY_STEPS, project="demo")
    return specs_of(fields_of(typed, {}, getpass.getuser()), None)[0]


def settle(sql: "Sql", job: str) -> None:
    """Blocks until the tables have the job's end. Raises CliError after SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    query = (
        f"SELECT (SELECT count() FROM step_metrics WHERE job_id = '{job}' AND metric = 'bigram_bits_per_byte') "
        f"* (SELECT count() FROM jobs WHERE job_id = '{job}' AND state = 'SUCCEEDED')"
    )
    while not sql.table(query).rows[0][0]:
        if time.monotonic() > deadline:
            raise CliError(f"the tables do not show the end of {job} after {SETTLE_S:.0f} s; see `trainhouse ps`", Exit.UNAVAILABLE)
        time.sleep(0.2)


def summarize(client: "TrainhouseClient", job: str, root: Path) -> None:
    """Prints what came of the job, where its time went, three answers in SQL, and what to do next."""
    from trainhouse.cli.shared import output

    found = client.sql.table(FIGURES.format(job=job)).dicts()[0]
    say("")
    say(f"{'held-out text':<22}{found['held_out']:.3f} bits per byte (a byte-bigram model: {found['bigram']:.3f})")
    say(f"{'speed':<22}{found['steps'] / max(found['training_s'], 1e-9):.1f} steps/s over {found['steps']} steps on {found['ranks']} ranks")
    say(f"{'checkpoints':<22}{found['checkpoints']}, the newest at step {found['checkpoint_step']} ({found['checkpoint_mb']:.1f} MB)")
    say("where the time went")
    for name, seconds in time_spent(found):
        say(f"  {name:<20}{seconds:6.1f} s  {'▇' * round(30 * seconds / max(found['whole_s'], 1e-9))}")
    for title, query in QUERIES:
        asked = " ".join(query.format(job=job).split())
        say(f'\n{title}\n  trainhouse sql "{asked}"')
        answer = client.sql.table(asked)
        numbers = [c for n, c in enumerate(answer.columns) if answer.rows and isinstance(answer.rows[0][n], int | float)]
        output.table(answer.columns, answer.rows, right=numbers)
    say(_next_steps(job, root))


def time_spent(found: dict[str, Any]) -> list[tuple[str, float]]:
    """Parts of the job's life in seconds; they add up to the whole."""
    waits = found["data_wait_s"] + found["save_stall_s"]
    known = {
        "queue": found["queue_s"],
        "starting": found["starting_s"],
        "stepping": max(0.0, found["training_s"] - waits),
        "data wait": found["data_wait_s"],
        "checkpoint stall": found["save_stall_s"],
    }
    return [*known.items(), ("evaluation and end", max(0.0, found["whole_s"] - sum(known.values())))]


def _next_steps(job: str, root: Path) -> str:
    run = f"{Path(sys.executable).parent.name}/trainhouse" if Path(sys.executable).with_name("trainhouse").exists() else "trainhouse"
    prefix = f".venv/{run}" if run.startswith("bin/") else run
    commands = {
        f"open {job}": "its page: curves, logs, checkpoints; `open` alone shows the fleet",
        "top": "jobs, nodes and queue, live in this terminal",
        f"events {job}": "everything that happened to it",
        f"logs {job}": "what it wrote",
        f"rerun {job} --wait": "the same again",
        "submit --gang 2 --wait -- python your_script.py": "a script of your own",
    }
    width = max(map(len, commands))
    lines = [f"{prefix} {command:<{width}}   {meaning}" for command, meaning in commands.items()]
    stop = f"stop:   make down   (or {prefix} down --data-dir {root}); the data stays, `make demo` goes on with it"
    return "go on:  " + "\n        ".join(lines) + "\n" + stop


def say(text: str) -> None:
    """A line on standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


FIGURES = """
SELECT
    (SELECT argMax(value, step) FROM step_metrics WHERE job_id = '{job}' AND metric = 'held_out_bits_per_byte') AS held_out,
    (SELECT argMax(value, step) FROM step_metrics WHERE job_id = '{job}' AND metric = 'bigram_bits_per_byte') AS bigram,
    (SELECT count() FROM checkpoints WHERE job_id = '{job}') AS checkpoints,
    (SELECT max(step) FROM checkpoints WHERE job_id = '{job}') AS checkpoint_step,
    (SELECT argMax(bytes_total, step) / 1e6 FROM checkpoints WHERE job_id = '{job}') AS checkpoint_mb,
    (SELECT max(data_wait_s) FROM ranks WHERE job_id = '{job}') AS data_wait_s,
    (SELECT max(save_stall_s) FROM ranks WHERE job_id = '{job}') AS save_stall_s,
    (SELECT max(time) FROM step_metrics WHERE job_id = '{job}' AND metric = 'loss') AS last_step_at,
    step AS steps, world_size AS ranks,
    dateDiff('millisecond', submitted_at, allocated_at) / 1000 AS queue_s,
    dateDiff('millisecond', allocated_at, started_at) / 1000 AS starting_s,
    greatest(0, dateDiff('millisecond', started_at, last_step_at) / 1000) AS training_s,
    dateDiff('millisecond', submitted_at, finished_at) / 1000 AS whole_s
FROM jobs WHERE job_id = '{job}'
"""

QUERIES = (
    (
        "How did the loss fall?",
        """SELECT intDiv(step, 50) * 50 AS from_step, round(avg(value), 3) AS mean_loss, count() AS points
        FROM step_metrics WHERE job_id = '{job}' AND metric = 'loss' GROUP BY from_step ORDER BY from_step""",
    ),
    (
        "What did each checkpoint cost?",
        """SELECT commit, step, round(bytes_new / 1e6, 2) AS sent_mb, round(stage_s, 3) AS stage_s, round(upload_s, 3) AS upload_s
        FROM checkpoints WHERE job_id = '{job}' ORDER BY commit""",
    ),
    (
        "Who used how many device seconds?",
        """SELECT user, project, count() AS jobs, round(sum(device_seconds), 1) AS device_seconds
        FROM allocations JOIN jobs USING (job_id) GROUP BY user, project ORDER BY device_seconds DESC""",
    ),
)
