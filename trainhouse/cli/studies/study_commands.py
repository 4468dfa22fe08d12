"""`trainhouse study …`: searches over hyperparameters whose trials are jobs.

Holds: what is printed as done is what the tuner decided; nothing is sent unless the whole file is valid.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.cli.studies.study_file import WrittenStudy
    from trainhouse.client import TrainhouseClient

GROUP = "study"
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the study.", show_default=False)]
Project = Annotated[str, typer.Option(help="Project that the study belongs to.")]
Reason = Annotated[str, typer.Option(help="Why; kept with it.")]
Answer = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for the tuner's answer.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Search hyperparameters: create studies, watch their trials, and show the best.")
    group.command("create")(create)
    group.command("list")(list_studies)
    group.command("show")(show)
    group.command("watch")(watch)
    group.command("best")(best)
    group.command("why")(why)
    group.command("what-if")(what_if)
    group.command("pause")(pause)
    group.command("resume")(resume)
    group.command("stop")(stop)
    app.add_typer(group, name=GROUP)


def create(
    file: Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="Space, metrics, budget and job.", show_default=False)],
    name: Annotated[Optional[str], typer.Option("--name", help="Name, over the file's.")] = None,  # noqa: UP045
    project: Annotated[Optional[str], typer.Option(help="Project, over the file's.")] = None,  # noqa: UP045
    code: Annotated[Path, typer.Option(help="Folder with your code.")] = Path("."),
    no_code: Annotated[bool, typer.Option("--no-code", help="Send no folder along.")] = False,
    earlier: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--from", metavar="STUDY", help="Take trials of this study of the project as known; may come again."),
    ] = None,
    from_sql: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--from-sql", metavar="QUERY", help="Take rows as known: columns called as parameters and metrics."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, print the spec as JSON, send nothing.")] = False,
    timeout: Answer = 30.0,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Create a study from a YAML file; its trials begin at once.

    \b
    trainhouse study create study.yaml
    trainhouse study create study.yaml --name wide --code src
    trainhouse study create study.yaml --name again --from digits

    The working folder goes along with each trial's job, as `trainhouse submit` sends it. A study that the tuner refuses ends the command
    with code 3 and the reason. By --from and --from-sql the sampler knows earlier trials from the start; those that do not fit are named.
    """
    from trainhouse.cli.jobs.submit import check_script
    from trainhouse.cli.shared import output
    from trainhouse.cli.studies.earlier_trials import with_known
    from trainhouse.cli.studies.study_file import read_study
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.client import without_secrets
    from trainhouse.scheduler.core.studies.equal_trials import why_run_again

    client = TrainhouseClient.from_settings()
    written = read_study(file, name, project, client.way.user)
    without_secrets(written.spec.job)
    written = with_known(written, earlier or [], from_sql)
    if dry_run:
        sys.stdout.write(written.spec.model_dump_json(exclude_defaults=True) + "\n")
        return
    if not no_code:
        check_script(written.spec.job, code)
    decided = _create(client, written, None if no_code else code, timeout)
    if json:
        output.json_lines([decided])
        return
    of = "" if written.project == DEFAULT_PROJECT else f" --project {written.project}"
    sys.stdout.write(f"{written.name}\n")
    again = why_run_again(written.spec.job, sends_code=not no_code) if written.spec.cache else ""
    if again:
        output.remark(f"trials with equal values run again: {again}")
    output.remark(f"follow it: trainhouse study watch {written.name}{of}\nits trials: trainhouse study show {written.name}{of}")


def list_studies(
    project: Annotated[Optional[str], typer.Option(help="Only of this project.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List studies with their best values, the newest first.

    \b
    trainhouse study list
    trainhouse study list --project vision --json
    """
    from trainhouse.cli.shared import output
    from trainhouse.cli.studies import study_tables
    from trainhouse.client.studies.study_reads import study_reads

    found = study_reads().studies(project)
    if json:
        output.json_lines(found)
    else:
        study_tables.show_studies(found)


def show(
    name: NameArgument,
    best_first: Annotated[bool, typer.Option("--best-first", help="Order trials by the first metric; default: by number.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many trials: the newest, or the best.")] = 50,
    project: Project = DEFAULT_PROJECT,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show a study and its trials; with --json the study, then a line for each trial.

    \b
    trainhouse study show digits
    trainhouse study show digits --best-first --limit 10
    """
    from trainhouse.cli.shared import output
    from trainhouse.cli.studies import study_tables
    from trainhouse.client.studies.study_reads import study_reads

    reads = study_reads()
    study = reads.study(project, name)
    trials = reads.trials(project, name)
    shown = _chosen(trials, study["modes"][0], limit, best_first=best_first)
    if json:
        output.json_lines([study, *shown])
        return
    study_tables.show_study(study_tables.as_of_trials(study, trials))
    sys.stdout.write("\n")
    study_tables.show_trials(shown)
    if len(shown) < len(trials):
        output.remark(f"{len(shown)} of {len(trials)} trials: --limit shows more")


def watch(
    name: NameArgument,
    timeout: Annotated[Optional[str], typer.Option(help="Stop following after 90s, 15m, 2h.")] = None,  # noqa: UP045
    project: Project = DEFAULT_PROJECT,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Watch a study until it ends: a line for each change.

    \b
    trainhouse study watch digits
    trainhouse study watch digits --timeout 2h
    """
    from trainhouse.cli.shared import output
    from trainhouse.cli.shared.filters import parse_duration_s
    from trainhouse.cli.studies import study_tables
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.studies.study_requests import follow_study

    until_s = None if timeout is None else time.monotonic() + parse_duration_s(timeout)
    for status in follow_study(TrainhouseClient.from_settings(), project, name):
        if status is not None and json:
            output.json_lines([status])
        elif status is not None:
            lines = output.wrapped(output.printable(f"{output.clock(status['updated_at_ms'])[11:]}  {study_tables.progress(status)}"))
            sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        if status is not None and status["state"] == "ENDED":
            return
        if until_s is not None and time.monotonic() > until_s:
            raise TimeoutError(f"study {name} has not ended within {timeout}; it goes on")


def best(name: NameArgument, project: Project = DEFAULT_PROJECT, json: Json = False, data_dir: DataDir = None) -> None:
    """Show the best trial of a study with its values; with several metrics all that no other one beats in each.

    Exit code 1 where no trial has a value that counts.

    \b
    trainhouse study best digits
    trainhouse study best digits --json
    """
    from trainhouse.cli.shared import output
    from trainhouse.cli.studies import study_tables
    from trainhouse.client.studies.study_reads import study_reads

    study = study_reads().study(project, name)
    if json:
        output.json_lines(study["best"])
    elif study["best"]:
        study_tables.show_best(study)
        output.remark(f"the same job again: trainhouse rerun {study['best'][0]['job_id']}")
    if not study["best"]:
        raise CliError(f"no trial of study {name} has a value of {study['metrics'][0]} that counts yet", Exit.FAILED)


def why(name: NameArgument, project: Project = DEFAULT_PROJECT, json: Json = False, data_dir: DataDir = None) -> None:
    """Show why a study is in its state: what it spent, on what, what early stopping saved, and which bound comes next.

    What was saved is an estimate, and it is said how it was computed.

    \b
    trainhouse study why digits
    trainhouse study why digits --json
    """
    from trainhouse.cli.shared import output
    from trainhouse.cli.studies import study_why
    from trainhouse.client.studies.study_reads import study_reads

    found = study_reads().why(project, name)
    if json:
        output.json_lines([found])
    else:
        study_why.show_why(found)


def what_if(
    name: NameArgument,
    early_stopping: Annotated[
        str, typer.Option("--early-stopping", metavar="RULE", help="asha:3, median:5, none; with settings: asha:3,min_step=10,max_step=90.")
    ],
    project: Project = DEFAULT_PROJECT,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show what a study would have cost and found under another rule of early stopping.

    \b
    trainhouse study what-if digits --early-stopping asha:3
    trainhouse study what-if digits --early-stopping median:5,min_step=20
    trainhouse study what-if digits --early-stopping none --json

    Decides anew over the recorded curves, in the order in which they were reported; settings that are not named stay the study's own.
    Trials that ended before the rule would have decided are named. With --json a line about the study, then one for each trial.
    """
    from trainhouse.cli.shared import output
    from trainhouse.cli.studies import what_if_report
    from trainhouse.client.studies.study_reads import study_reads
    from trainhouse.client.studies.trial_facts import trial_facts
    from trainhouse.scheduler.core.studies.stopping_what_if import decide_anew

    reads = study_reads()
    study = reads.study(project, name)
    own, objectives = what_if_report.recorded_rule(study)
    stopping = what_if_report.other_rule(early_stopping, own)
    try:
        found = decide_anew(objectives, stopping, trial_facts(reads.facts(project, name)))
    except ValueError as error:
        raise CliError(f"study {name}: {error}", Exit.USAGE) from error
    if json:
        output.json_lines([what_if_report.summary(study, own, found), *map(what_if_report.trial_row, found.trials)])
    else:
        what_if_report.show(study, own, found)


def pause(
    name: NameArgument,
    reason: Reason = "",
    project: Project = DEFAULT_PROJECT,
    timeout: Answer = 30.0,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Pause a study: no more trials begin, and those that run go on.

    \b
    trainhouse study pause digits --reason "the pool is full"
    """
    from trainhouse.events import StudyPauseRequested

    _change(StudyPauseRequested, {"project": project, "study": name, "reason": reason}, timeout, json)


def resume(
    name: NameArgument,
    reason: Reason = "",
    project: Project = DEFAULT_PROJECT,
    timeout: Answer = 30.0,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Resume a paused study.

    \b
    trainhouse study resume digits
    """
    from trainhouse.events import StudyResumeRequested

    _change(StudyResumeRequested, {"project": project, "study": name, "reason": reason}, timeout, json)


def stop(
    name: NameArgument,
    reason: Reason = "",
    project: Project = DEFAULT_PROJECT,
    timeout: Answer = 30.0,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Stop a study: it ends, and its running trials are cancelled.

    \b
    trainhouse study stop digits --reason "good enough"
    """
    from trainhouse.events import StudyStopRequested

    _change(StudyStopRequested, {"project": project, "study": name, "reason": reason}, timeout, json)


def _create(client: "TrainhouseClient", written: "WrittenStudy", folder: Path | None, timeout: float) -> dict[str, Any]:
    """Stores the folder, and asks that the study begin. Blocks. Raises ClientError."""
    import getpass

    from trainhouse.cli.shared.code_upload import upload
    from trainhouse.client.studies.study_requests import create_study
    from trainhouse.events import StudyCreated

    spec = written.spec
    if folder is not None and spec.job.code is None:
        spec = spec.model_copy(update={"job": spec.job.model_copy(update={"code": upload(client, folder)})})
    event = StudyCreated(project=written.project, study=written.name, spec=spec, user=getpass.getuser())
    return create_study(client, event, timeout)


def _change(kind: Any, about: dict[str, Any], timeout: float, json: bool) -> None:
    import getpass

    from pydantic import ValidationError

    from trainhouse.cli.shared import output
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.studies.study_requests import change_study
    from trainhouse.events.wire.validation_messages import explain_validation

    try:
        event = kind.model_validate(about | {"user": getpass.getuser()})
    except ValidationError as error:
        raise CliError(f"{explain_validation(error, kind)}\nnothing was sent", Exit.USAGE) from error
    decided = change_study(TrainhouseClient.from_settings(), event, timeout)
    if json:
        output.json_lines([decided])
    else:
        sys.stdout.write(output.printable(f"study {decided['study']} is {decided['state']}") + "\n")


def _chosen(trials: list[dict[str, Any]], mode: str, limit: int, *, best_first: bool) -> list[dict[str, Any]]:
    """The newest trials by number, or the best by value: those without one come last."""
    if not best_first:
        return trials[-limit:]
    sign = -1 if mode == "max" else 1
    return sorted(trials, key=lambda row: (row["value"] is None, sign * (row["value"] or 0.0), row["trial"]))[:limit]
