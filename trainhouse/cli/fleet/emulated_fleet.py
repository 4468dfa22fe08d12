"""`trainhouse fleet`: thousands of emulated nodes in one process, for trials of the control plane at scale.

Holds: everything goes over the brokers as real agents' words do; remarks go to standard error, the summary to standard output.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import KafkaDir

if TYPE_CHECKING:
    from trainhouse.workers.fleet.fleet import Plan
    from trainhouse.workers.fleet.fleet_summary import Summary
    from trainhouse.workers.fleet.job_load import LoadPlan

HELP = """
Emulate a fleet of nodes over the real brokers; only what their ranks do is scripted. Ctrl-C stops it and sums up.

\b
trainhouse fleet --nodes 1250 --gpus-per-node 8
trainhouse fleet --nodes 40 --pool trial --durations exp:20 \\
    --faults die=30/h:20s,crash=2%
trainhouse fleet --nodes 1250 --submit-rate 8.3 --jobs 5000 \\
    --durations 10..120
trainhouse submit --pool fleet --gang 64 --label emulate.run_s=30 -- true

A job says how it behaves by labels emulate.run_s, .start_s, .step_s, .save_s, .checkpoint_s, .stop_s, .exit_code, .crash_s,
.crash_rank, .crash_attempts (or variables EMULATE_RUN_S …); what it does not say comes from the script, then from the options.
"""
LOAD, BEHAVIOUR, SHAPE = "Load", "Behaviour", "Shape"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("fleet", help=HELP)(fleet)


def fleet(
    nodes: Annotated[int, typer.Option(min=1, max=20_000, help="Machines.", rich_help_panel=SHAPE)] = 1250,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=64, help="Devices of each.", rich_help_panel=SHAPE)] = 8,
    pool: Annotated[str, typer.Option(help="Their pool; created if there is none of that name.", rich_help_panel=SHAPE)] = "fleet",
    device_type: Annotated[str, typer.Option(rich_help_panel=SHAPE)] = "H100",
    nodes_per_rack: Annotated[int, typer.Option(min=1, rich_help_panel=SHAPE)] = 16,
    racks_per_pod: Annotated[int, typer.Option(min=1, rich_help_panel=SHAPE)] = 8,
    spot_share: Annotated[
        float, typer.Option(min=0, max=1, help="Part of the nodes that is labelled spot=true.", rich_help_panel=SHAPE)
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.", rich_help_panel=BEHAVIOUR)] = 0,
    durations: Annotated[
        str, typer.Option(help="Run times: 30 | 10..600 | exp:120 | lognormal:60,1.5 | trace:FILE[,SCALE].", rich_help_panel=BEHAVIOUR)
    ] = "60",
    faults: Annotated[
        str,
        typer.Option(help="die=2/h:120s,notice=2/h:120s,silent=4/h:30s,restart=10/h:3s,crash=1%,slow=2%:30s", rich_help_panel=BEHAVIOUR),
    ] = "",
    script: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="YAML: faults at exact moments or of busy nodes, and how jobs of some names behave.", rich_help_panel=BEHAVIOUR),
    ] = None,
    heartbeat_s: Annotated[float, typer.Option(min=0.1, max=60, rich_help_panel=BEHAVIOUR)] = 10.0,
    start_s: Annotated[float, typer.Option(min=0, help="From the order to processes.", rich_help_panel=BEHAVIOUR)] = 0.2,
    step_s: Annotated[float, typer.Option(min=0.001, help="One optimizer step.", rich_help_panel=BEHAVIOUR)] = 5.0,
    save_s: Annotated[float, typer.Option(min=0, help="One checkpoint.", rich_help_panel=BEHAVIOUR)] = 1.0,
    checkpoint_s: Annotated[float, typer.Option(min=0, help="Between checkpoints; 0: only when asked.", rich_help_panel=BEHAVIOUR)] = 60.0,
    submit_rate: Annotated[Optional[float], typer.Option(min=0.001, help="Jobs a second.", rich_help_panel=LOAD)] = None,  # noqa: UP045
    jobs: Annotated[
        int, typer.Option(min=1, help="With --submit-rate: so many; it ends when they have ended.", rich_help_panel=LOAD)
    ] = 100,
    sizes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="With --submit-rate: ranks:weight,…; default: mostly small, to 512.", rich_help_panel=LOAD),
    ] = None,
    run_for_s: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--for-s", min=0, help="Stop by itself after so many seconds."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
    data_dir: KafkaDir = None,
) -> None:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.workers.fleet.durations import parse_durations
    from trainhouse.workers.fleet.emulation import Options, run_fleet
    from trainhouse.workers.fleet.errors import FleetError
    from trainhouse.workers.fleet.faults import parse_faults
    from trainhouse.workers.fleet.fleet import Plan
    from trainhouse.workers.fleet.hardware import Hardware
    from trainhouse.workers.fleet.script_file import Script, read_script
    from trainhouse.workers.fleet.scripts import Defaults, Scripts

    try:
        hardware = Hardware(_pool(pool), nodes, gpus_per_node, device_type, nodes_per_rack, racks_per_pod, spot_share, seed)
        read = read_script(script, nodes) if script is not None else Script()
        defaults = Defaults(start_s, step_s, save_s, checkpoint_s)
        scripts = Scripts(parse_durations(durations), defaults, read.rules, parse_faults(faults), seed)
        plan = Plan(hardware, scripts, heartbeat_s, read.faults)
        load = _load(plan, submit_rate, jobs, sizes) if submit_rate is not None else None
    except FleetError as error:
        raise CliError(str(error), Exit.USAGE) from error
    found = run_fleet(KafkaSettings(), plan, load, Options(run_for_s, until_done=load is not None), _say)
    _show(found, json)


def _pool(name: str) -> str:
    from trainhouse.events import PoolName
    from trainhouse.workers.fleet.errors import InvalidPlanError

    try:
        return str(PoolName.parse(name))
    except ValueError as error:
        raise InvalidPlanError(f"--pool: {error}") from error


def _load(plan: "Plan", per_s: float, count: int, sizes: str | None) -> "LoadPlan":
    """A load whose job ids no other run has used."""
    import time

    from trainhouse.workers.fleet.job_load import MIXED, LoadPlan, Sizes

    hardware = plan.hardware
    wanted = Sizes.parse(sizes or MIXED).at_most(hardware.nodes * hardware.gpus_per_node)
    return LoadPlan(f"load-{time.time_ns() // 1_000_000_000}", hardware.pool, per_s, count, wanted, hardware.device_type, hardware.seed)


def _show(found: "Summary", as_json: bool) -> None:
    from trainhouse.cli.shared import output

    if as_json:
        output.json_lines([found.as_dict()])
        return
    output.table(
        ("what", "value"), ((name, _text(value)) for name, value in found.as_dict().items() if value is not None and name != "struck")
    )


def _text(value: object) -> object:
    return ", ".join(f"{kind} {count}" for kind, count in value.items()) or "none" if isinstance(value, dict) else value


def _say(text: str) -> None:
    import time

    sys.stderr.write(f"{time.strftime('%H:%M:%S')}  {text}\n")
    sys.stderr.flush()
