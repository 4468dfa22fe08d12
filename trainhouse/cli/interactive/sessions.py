"""Sessions of interactive work: a job that is submitted for one, its wait for devices, and the gateway that leads to it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainhouse.cli.shared.exit_codes import CliError, Exit

if TYPE_CHECKING:
    from trainhouse.client import Job, TrainhouseClient
    from trainhouse.client.gateway.backend import ByGateway
    from trainhouse.events import JobSpec

COMMAND: Final = ("python", "-m", "trainhouse.workers.interactive")
STARTED: Final = ("INITIALIZING", "RUNNING", "CHECKPOINTING")


@dataclass(frozen=True)
class Wanted:
    """Options of a session that is to be submitted; None: not typed."""

    kind: str
    idle_limit: str | None = None
    devices: int = 1
    device: str | None = None
    name: str | None = None
    project: str | None = None
    team: str | None = None
    pool: str | None = None
    priority: int | None = None
    max_run_time: str | None = None
    interpreter: str | None = None
    env: Sequence[str] = ()
    secrets: Sequence[str] = ()


def gateway() -> "ByGateway":
    """The gateway of the settings: tunnels go by no other way. Raises CliError."""
    from trainhouse.cli.stack.open import local_token
    from trainhouse.client.gateway.backend import ByGateway
    from trainhouse.client.settings import GatewaySettings

    settings = GatewaySettings()
    if not settings.url:
        raise CliError(
            "interactive work goes by the gateway, and none is known: `trainhouse up` starts one, or set TRAINHOUSE_GATEWAY_URL and "
            "TRAINHOUSE_GATEWAY_TOKEN",
            Exit.CONFIG,
        )
    return ByGateway(settings.url, settings.token or local_token())


def spec_of(wanted: Wanted) -> "JobSpec":
    """The spec of a session's job. Raises CliError."""
    from trainhouse.cli.jobs import spec_build
    from trainhouse.cli.shared.filters import parse_duration_s

    interactive: dict[str, Any] = {"kind": wanted.kind}
    if wanted.idle_limit is not None:
        interactive["idle_limit_s"] = parse_duration_s(wanted.idle_limit)
    base: dict[str, Any] = {"interactive": interactive}
    if wanted.devices > 1:
        base["gang"] = {"ranks": wanted.devices, "require": "node"}
    typed = spec_build.Typed(
        command=COMMAND,
        name=wanted.name or wanted.kind,
        project=wanted.project,
        team=wanted.team,
        pool=wanted.pool,
        priority=wanted.priority,
        device=wanted.device,
        interpreter=wanted.interpreter,
        env=tuple(wanted.env),
        secrets=tuple(wanted.secrets),
        max_run_time=wanted.max_run_time,
        # What a person did there is gone with it: a session is not begun again by itself.
        restarts=0,
    )
    [spec] = spec_build.specs_of(spec_build.fields_of(typed, base, "unknown"), None)
    return spec


def submitted(way: "ByGateway", wanted: Wanted, code: Path | None) -> str:
    """Submits a session and waits until it runs; returns the job's id. Blocks. Raises CliError, ClientError."""
    from trainhouse.cli.jobs.submit import send
    from trainhouse.client import TrainhouseClient

    client, spec = TrainhouseClient(way), spec_of(wanted)
    [job] = send(client, [spec], code, None, json=False)
    _wait(client, job)
    return str(job.job_id)


def _wait(client: "TrainhouseClient", job: "Job") -> None:
    from trainhouse.cli.shared.output import one_line, remark

    shown = ""
    try:
        for status in client.watch(job):
            if status is None:
                continue
            if status.state.final:
                raise CliError(f"{job.job_id} is {status.state}: {one_line(status.reason)}", Exit.REJECTED)
            if status.state in STARTED:
                return
            text = f"{status.state}" + (f": {one_line(status.reason)}" if status.reason else "")
            if text != shown:
                remark(text)
                shown = text
    except KeyboardInterrupt:
        sys.stderr.write(f"{job.job_id} goes on waiting; end it with `trainhouse cancel {job.job_id}`\n")
        raise
