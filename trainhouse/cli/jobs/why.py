"""`why JOB`: what keeps a job waiting, with its numbers, what would let it start, and when it is expected to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, JobArgument, Json
from trainhouse.cli.shared.output import one_line

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.kafka.explaining import Explained
    from trainhouse.scheduler.core.explain.node_reasons import NodeAnswer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("why")(why)


def why(
    job: JobArgument,
    at: Annotated[Optional[str], typer.Option("--at", help="As it was then: ISO time, or how long ago, such as `10m`.")] = None,  # noqa: UP045
    nodes: Annotated[bool, typer.Option("--nodes", help="Also what each node of its pool says, one by one.")] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show why a job is pending: its needs, refusals and by how much, the changes that would unblock it, and its expected start.

    The scheduler's own answer, as it published it when it changed last; with --at or --nodes worked out from its journal.

    \b
    trainhouse why gpt-1k7x3m9qp2f8d
    trainhouse why gpt-1k7x3m9qp2f8d --at 10m
    trainhouse why gpt-1k7x3m9qp2f8d --nodes
    trainhouse why gpt-1k7x3m9qp2f8d --json | jq .unblock
    trainhouse sql "SELECT at, obstacle, text FROM explanations
        WHERE job_id = 'gpt-1k7x3m9qp2f8d'"
    """
    from trainhouse.cli.shared import output

    published = None if at or nodes else _published(job)
    found, asked = (published, []) if published is not None else _answer(job, at, nodes)
    if json:
        import dataclasses

        output.json_lines([dict(found) | ({"nodes": [dataclasses.asdict(a) for a in asked]} if nodes else {})])
        return
    for name, text in lines(found):
        typer.echo(f"{name:<14}{output.printable(text)}")
    if nodes:
        typer.echo("")
        output.table(
            ("node", "free", "devices", "says"), [(a.node_id, a.free, a.devices, a.text) for a in asked], right=("free", "devices")
        )


def _published(job: str) -> dict[str, Any] | None:
    """The newest answer that the scheduler published; None: not for this wait, or not known here. Blocks. Raises CliError for a job that
    does not wait."""
    from trainhouse.cli.jobs.job_status import current
    from trainhouse.client.quick.quick_reads import quickly
    from trainhouse.client.rows import WAITING

    _, status = current(job)
    if status["state"] not in WAITING:
        raise _waits_no_more(job, status["state"], status["reason"])
    found = quickly(lambda reads: reads.why(job))
    return found if found is not None and is_of_this_wait(found, status) else None


def is_of_this_wait(found: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Returns whether an explanation is newer than the last time that the job had devices. Pure."""
    return bool(found["at_ms"] >= (status["allocated_at_ms"] or 0))


def _answer(job: str, at: str | None, nodes: bool) -> "tuple[dict[str, Any], list[NodeAnswer]]":
    """The answer of a job that waits then, and if `nodes`, what each of them says. Raises CliError for one that does not wait."""
    import time

    from trainhouse.cli.data.replay import moment_of, too_early
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.kafka.backend import ByKafka
    from trainhouse.client.kafka.explaining import explained
    from trainhouse.scheduler.time_travel import NoSuchMomentError

    now_ms = time.time_ns() // 1_000_000
    at_ms = None if at is None else moment_of(at, now_ms)
    client = TrainhouseClient.from_settings()
    if not isinstance(client.way, ByKafka):
        return _from_gateway(client, job, at, at_ms, nodes)
    try:
        found = explained(client.kafka, job, now_ms if at_ms is None else at_ms, nodes=nodes)
    except NoSuchMomentError as error:
        raise too_early(at or "now", error.first_ms) from error
    if found is None:
        raise _unknown(job, at)
    if found.answer is None:
        raise CliError(_waits_not(job, found, at), Exit.NOT_FOUND)
    return found.answer.model_dump(mode="json"), list(found.nodes)


def _from_gateway(
    client: "TrainhouseClient", job: str, at: str | None, at_ms: int | None, nodes: bool
) -> "tuple[dict[str, Any], list[NodeAnswer]]":
    """The scheduler's own answer, over the gateway."""
    from trainhouse.cli.jobs.job_status import find

    if nodes:
        raise CliError(
            "--nodes folds the scheduler's journal, which only Kafka has: run it where the stack is (--data-dir DIR)", Exit.CONFIG
        )
    status = find(client, job)
    found = client.why(job, at_ms)
    if found is not None:
        return found.model_dump(mode="json"), []
    if at is not None:
        raise CliError(f"nothing tells that job {job} waited then; it is {status.state} now", Exit.NOT_FOUND)
    raise _waits_no_more(job, status.state, status.reason)


def _waits_no_more(job: str, state: str, reason: str) -> CliError:
    hint = f"`trainhouse why {job} --at TIME` explains a time when it did"
    return CliError(f"job {job} does not wait: it is {state}{f' ({one_line(reason)})' if reason else ''}; {hint}", Exit.NOT_FOUND)


def _waits_not(job: str, found: "Explained", at: str | None) -> str:
    when = "does not wait" if at is None else "did not wait then"
    reason = f" ({one_line(found.reason)})" if found.reason else ""
    return f"job {job} {when}: it {'is' if at is None else 'was'} {found.state}{reason}"


def _unknown(job: str, at: str | None) -> CliError:
    """Finished, refused, not yet submitted then, or never known."""
    from trainhouse.cli.jobs.job_status import find
    from trainhouse.client import TrainhouseClient

    status = find(TrainhouseClient.from_settings(), job)
    if at is None:
        return _waits_no_more(job, status.state, status.reason)
    return CliError(f"job {job} was not in the scheduler's hands then; it is {status.state} now", Exit.NOT_FOUND)


def lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The answer, as JSON, as (name, text), in the order in which a person asks."""
    from trainhouse.cli.shared.output import clock

    rows: list[tuple[str, str]] = [
        ("job", f"{found['job_id']} of team {found['team']} waits in pool {found['pool']} since {clock(found['waiting_since_ms'])}"),
        ("as of", clock(found["at_ms"])),
        ("place", f"{found['place']} of {found['waiting']}"),
        ("needs", found["needs"]),
        ("because", found["text"]),
    ]
    refusals = [each["text"] for each in found["refusals"] if each["text"] != found["text"]]
    rows += [("refused by" if n == 0 else "", text) for n, text in enumerate(refusals)]
    rows += [("unblocked by" if n == 0 else "", way) for n, way in enumerate(found["unblock"])]
    if found["score"] is not None:
        s = found["score"]
        terms = f"{s['priority']:g} (100 - priority) + {s['wait_bonus']:.2f} (wait) - {s['over_share_penalty']:.2f} (over share)"
        rows.append(("score", f"{s['total']:.2f} = {terms}"))
    when = clock(found["eta_ms"]) if found["eta_ms"] is not None else "not known"
    rows.append(("starts", f"{when}: {found['eta_from']}" if found["eta_from"] else when))
    return rows
