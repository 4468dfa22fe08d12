"""`what-if`: the recorded past under another policy."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir, Pool, Since

if TYPE_CHECKING:
    from trainhouse.events.model.policy import SchedulingPolicy
    from trainhouse.scheduler.sim.journal_trace import Recorded
    from trainhouse.scheduler.sim.what_if import Change, Honesty, WhatIf

COLUMNS = ("team", "figure", "recorded policy", "new policy", "difference")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("what-if")(what_if)


def what_if(
    policy: Annotated[str, typer.Option("--policy", help="The other policy: a file, or the name of one.", show_default=False)],
    since: Since = None,
    pool: Pool = None,
    checkpoint_s: Annotated[int, typer.Option("--checkpoint-every", min=1, help="Seconds between checkpoints of a job.")] = 1800,
    restart_s: Annotated[int, typer.Option("--restart-cost", min=0, help="Seconds that a restart takes.")] = 60,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Re-run the recorded history in the simulator, under the recorded policy and under another, and print what would differ.

    \b
    trainhouse what-if --policy fair
    trainhouse what-if --policy new.yaml --since 7d --pool default --json
    """
    from trainhouse.cli.fleet.simulate import bars
    from trainhouse.cli.shared import output
    from trainhouse.scheduler.sim.types import Options
    from trainhouse.scheduler.sim.what_if import NEW, RECORDED
    from trainhouse.scheduler.sim.what_if import what_if as ask

    output.logs_aside()
    wanted = read(policy)
    past = _past(pool, since)
    check(wanted, policy, past)
    with bars((RECORDED, NEW), len(past.jobs)) as progress:
        found = ask(past, wanted, Options(checkpoint_s=checkpoint_s, restart_s=restart_s), progress)
    if json:
        output.json_lines([found.as_json()])
        return
    show(found)


def read(policy: str) -> "SchedulingPolicy":
    """A policy by name or file. Raises CliError."""
    from trainhouse.scheduler.policies import PolicyError, load

    try:
        return load(policy)
    except PolicyError as error:
        raise CliError(str(error), Exit.USAGE) from error
    except OSError as error:
        raise CliError(f"{policy}: cannot be read ({error.strerror})", Exit.NOT_FOUND) from error


def check(policy: "SchedulingPolicy", source: str, past: "Recorded") -> None:
    """Refuses a policy that the recorded pool could not obey, with its lines. Raises CliError."""
    from trainhouse.scheduler.core.queue.policy_check import check_against
    from trainhouse.scheduler.policies import read_text, refusal

    slots = [n.slots for n in past.nodes if n.slots is not None]
    levels = {level for s in slots for level, _ in s.domains}
    faults = check_against(policy, {t for s in slots for t in s.types}, levels)
    if faults:
        text, file = read_text(source)
        raise CliError(str(refusal(file, text, faults)), Exit.USAGE)


def _past(pool: str | None, since: str | None) -> "Recorded":
    """Reads the journal. Raises CliError where it says too little."""
    import time

    from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
    from trainhouse.cli.shared.filters import parse_time
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.core.errors import BrokenInvariant
    from trainhouse.scheduler.sim.journal_trace import NothingRecordedError, recorded
    from trainhouse.scheduler.stream.history.history_journal import recorded_history

    since_ms = parse_time(since, time.time_ns() // 1_000_000) if since else None
    try:
        return recorded(recorded_history(KafkaSettings(), ObjectArchive()), pool, since_ms)
    except NothingRecordedError as error:
        raise CliError(str(error), Exit.NOT_FOUND) from error
    except BrokenInvariant as error:
        raise CliError(f"the journal cannot be read: {error}", Exit.FAILED) from error


def show(found: "WhatIf") -> None:
    """Prints the answer for a person."""
    from trainhouse.cli.shared import output

    for note in found.notes:
        output.remark(note)
    jobs = f"{found.new.jobs:,} jobs in {output.duration(found.span_s)}"
    sys.stdout.write(f"pool {found.pool}, {jobs}: {found.new_policy} instead of {found.recorded_policy}\n")
    sys.stdout.flush()
    output.table(COLUMNS, [row(c) for c in found.changes], right=COLUMNS[2:])
    sys.stdout.write(sentence(found.honesty) + "\n")


def row(change: "Change") -> tuple[str, ...]:
    """A line of the table, with units that people read."""
    name = change.what
    text: Callable[[float], str] = _number
    if name.endswith("_s"):
        name, text = name.removesuffix("_s"), _time
    elif change.what == "utilization":
        text = _percent
    what = name.replace("_", " ").replace("jct", "completion").replace(" gpu h", " GPU hours")
    sign = "" if change.difference == 0 else "+" if change.difference > 0 else "-"
    difference = f"{sign}{text(abs(change.difference))}"
    return (change.team or "(all)", what, text(change.recorded), text(change.new), difference)


def sentence(honesty: "Honesty") -> str:
    """Describes the trust that the simulator deserves, from the policy that really ruled."""
    if not honesty.jobs:
        return "How near the simulation is to what happened cannot be said: no job that was submitted in that time has ended."
    return (
        f"How near the simulation of the recorded policy is to what happened, over {honesty.jobs:,} jobs that ended: "
        f"mean wait {_time(honesty.simulated_mean_wait_s)} simulated, {_time(honesty.real_mean_wait_s)} real; "
        f"p95 {_time(honesty.simulated_p95_wait_s)} and {_time(honesty.real_p95_wait_s)}; "
        f"a job's wait is off by {_time(honesty.median_wait_off_s)} (median), {_time(honesty.p95_wait_off_s)} (p95); "
        f"utilization {_percent(honesty.simulated_utilization)} and {_percent(honesty.real_utilization)}; "
        f"lost GPU hours {_number(honesty.simulated_lost_gpu_s / 3600)} and {_number(honesty.real_lost_gpu_s / 3600)}."
    )


def _time(seconds: float) -> str:
    from trainhouse.cli.shared.output import duration

    return duration(seconds)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"
