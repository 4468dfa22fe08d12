"""`alerts`: what needs a look now, the rules behind it, and when a rule would have fired."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

if TYPE_CHECKING:
    from trainhouse.projections.alerts.backtest import Occurrence
    from trainhouse.projections.alerts.rules import Rule

# Read late: a group's own callback must not decide where a Trainhouse is before its subcommand has been read.
Folder = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads it at run time
    typer.Option("--data-dir", help="Folder of the stack; default as everywhere.", rich_help_panel="Where"),
]
MOST_OF_RULE = 5
"""So many alerts of one rule stand below a cause."""
COLUMNS = ("severity", "rule", "since", "for", "summary", "owner", "runbook")


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="List alerts that hold; show their rules, and try rules on the past.")
    group.callback(invoke_without_command=True)(alerts)
    group.command("rules")(rules)
    group.command("backtest")(backtest)
    app.add_typer(group, name="alerts")


def alerts(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Those that have resolved too.")] = False,
    since: Annotated[Optional[str], typer.Option("--since", help="With --all: that fired from then on: 2h, 3d, 2026-05-01T12:00.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: Folder = None,
) -> None:
    """Alerts that are open by cause, the gravest first: one row for a node, a job or a rule, and below it the rules that fired for it.

    \b
    trainhouse alerts
    trainhouse alerts --all --since 1d --json
    trainhouse alerts backtest nodes-lost --since 30d
    """
    if context.invoked_subcommand is not None:
        return
    import time

    from trainhouse.cli.shared import output, settings_lookup
    from trainhouse.client.quick.quick_reads import asked

    settings_lookup.use(data_dir)
    now_ms = time.time_ns() // 1_000_000
    query = query_of(now_ms, every, since)
    if every:
        found = asked(lambda reads: reads.sql.table(query).dicts(), lambda client: client.sql.table(query).dicts())
    else:
        found = asked(lambda reads: reads.alert_causes(), lambda client: client.way.alert_causes())
    groups = [] if every else found
    rows = found if every else [alert | {"cause": group["cause"]} for group in groups for alert in group["alerts"]]
    if json:
        output.json_lines(rows)
    elif every and rows:
        show(rows, now_ms)
    elif groups:
        show_causes(groups, now_ms)
    else:
        output.remark("no alerts" if every else "no alert is open; --all shows those of before")


def show(rows: list[dict[str, Any]], now_ms: int) -> None:
    """Prints alerts of all times as a table for a person."""
    from trainhouse.cli.shared import output

    cells = ((row["state"], *_cells(row, now_ms)) for row in rows)
    output.table(("state", *COLUMNS), cells, drop=("runbook", "owner", "since", "for"))


def show_causes(groups: list[dict[str, Any]], now_ms: int) -> None:
    """Prints open alerts by cause as a table for a person: a group of one is its alert, a larger one has its rules below it."""
    from trainhouse.cli.shared import output

    rows = [row for group in groups for row in rows_of_cause(group, now_ms)]
    output.table(COLUMNS, rows, drop=("runbook", "owner", "since", "for"))
    hidden = sum(len(group["alerts"]) - len(_shown(group["alerts"])) for group in groups)
    if hidden:
        output.remark(f"{hidden} more of the same rules are not shown; --json has all")


def rows_of_cause(group: dict[str, Any], now_ms: int) -> list[tuple[Any, ...]]:
    """Rows of one cause: its own, then the alerts of each rule, indented. Pure."""
    if len(group["alerts"]) == 1:
        return [_cells(group["alerts"][0], now_ms)]
    head = {
        "severity": group["severity"],
        "rule": f"{len(group['alerts'])} alerts",
        "since_ms": group["since_ms"],
        "summary": group["title"],
    }
    below = [_cells(alert, now_ms) for alert in _shown(group["alerts"])]
    return [_cells(head | {"owner": "", "runbook": "", "resolved_at_ms": None}, now_ms), *((f"  {row[0]}", *row[1:]) for row in below)]


def _shown(alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first alerts of each rule: a rule that fired for hundreds of jobs is no table for a person."""
    count: Counter[str] = Counter()
    shown = []
    for alert in alerts:
        count[alert["rule"]] += 1
        if count[alert["rule"]] <= MOST_OF_RULE:
            shown.append(alert)
    return shown


def query_of(now_ms: int, every: bool, since: str | None) -> str:
    """The query; pure. Raises CliError."""
    from trainhouse.cli.shared.filters import parse_time
    from trainhouse.client.rows import alerts_query

    if since and not every:
        raise CliError("--since is for --all: what is open is shown whenever it fired", Exit.USAGE)
    return alerts_query(every=every, since_ms=parse_time(since, now_ms) if since else None)


def _cells(row: dict[str, Any], now_ms: int) -> tuple[Any, ...]:
    from trainhouse.cli.shared.output import clock, duration, one_line

    lasted_s = ((row["resolved_at_ms"] or now_ms) - row["since_ms"]) / 1000
    summary = one_line(row["summary"], 160)
    return (row["severity"], row["rule"], clock(row["since_ms"]), duration(max(0.0, lasted_s)), summary, row["owner"], row["runbook"])


def rules(json: Json = False, data_dir: Folder = None) -> None:
    """List the rules that run: the shipped ones, and those of TRAINHOUSE_ALERTS_RULES (a file or a folder). Exit code 2: one is refused.

    \b
    trainhouse alerts rules
    TRAINHOUSE_ALERTS_RULES=rules.yaml trainhouse alerts rules
        checks a file before it is used
    """
    from trainhouse.cli.shared import output, settings_lookup
    from trainhouse.projections.alerts.rule_files import load
    from trainhouse.projections.alerts.settings import AlertsSettings

    if data_dir is not None or settings_lookup.find_config(None, os.environ, Path.cwd()) is not None:
        settings_lookup.use(data_dir)
    loaded = load(AlertsSettings().rules)
    if json:
        output.json_lines(rule.model_dump(mode="json") for rule in loaded.rules.values())
    else:
        columns = ("rule", "severity", "fires when", "for", "owner", "on")
        output.table(columns, (_rule_cells(rule) for rule in loaded.rules.values()))
    if loaded.faults:
        raise CliError("refused, the others run:\n" + "\n".join(map(str, loaded.faults)), Exit.USAGE)


def _rule_cells(rule: "Rule") -> tuple[Any, ...]:
    from trainhouse.cli.shared.output import duration
    from trainhouse.projections.alerts.rules import SqlRule

    if isinstance(rule, SqlRule):
        what = f"value {rule.when.value} {rule.limit:g}"
    else:
        where = "".join(f", {column} {' or '.join(values)}" for column, values in rule.where.items())
        what = f"{rule.verdict.removeprefix('trainhouse.').rpartition('.v')[0]}{where}"
    return (rule.name, rule.severity.value, what, duration(rule.for_s) if rule.for_s else "", rule.owner, "yes" if rule.enabled else "no")


def backtest(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule's name, or a YAML file of rules.", show_default=False)],
    since: Annotated[str, typer.Option("--since", help="From then on: 2h, 30d, or 2026-05-01T12:00.")] = "30d",
    until: Annotated[Optional[str], typer.Option("--until", help="Before then; default: now.")] = None,  # noqa: UP045
    step: Annotated[Optional[str], typer.Option("--step", help="Ask about every so much time; default: as the rule does live.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Show when a rule would have fired and resolved: the live engine under a virtual clock, on the stored tables (40 days of heartbeats).

    \b
    trainhouse alerts backtest nodes-lost --since 30d
    trainhouse alerts backtest my-rules.yaml --since 7d --step 5m
    """
    import time

    from trainhouse.cli.shared import output
    from trainhouse.cli.shared.filters import parse_time

    now_ms = time.time_ns() // 1_000_000
    since_ms, until_ms = parse_time(since, now_ms), parse_time(until, now_ms) if until else now_ms
    step_ms = now_ms - parse_time(step, now_ms) if step else None
    if since_ms >= until_ms or (step_ms is not None and step_ms < 1000):
        raise CliError("--since must be before --until, and --step at least 1s", Exit.USAGE)
    found = [(one, each) for one in _named(rule) for each in _try(one, since_ms, until_ms, step_ms)]
    if json:
        output.json_lines(
            each.fired.model_dump(mode="json", exclude={"at_ms"}) | {"fired_at_ms": each.fired.at_ms, "resolved_at_ms": each.resolved_ms}
            for _, each in found
        )
        return
    if found:
        columns = ("rule", "fired", "resolved", "for", "value", "summary")
        output.table(columns, (_occurrence(one.name, each) for one, each in found), right=("value",))
    count = f"{len(found)} time{'' if len(found) == 1 else 's'}"
    output.remark(f"{rule} would have fired {count} between {output.clock(since_ms)} and {output.clock(until_ms)} UTC")


def _try(rule: "Rule", since_ms: int, until_ms: int, step_ms: int | None) -> "list[Occurrence]":
    from trainhouse.projections.alerts.backtest import backtest as past
    from trainhouse.projections.alerts.errors import EndpointUnavailableError, RuleFailedError
    from trainhouse.projections.alerts.query import asker
    from trainhouse.projections.alerts.settings import AlertsSettings
    from trainhouse.projections.settings import ClickHouseSettings

    interactive = sys.stderr.isatty()

    def progress(share: float) -> None:
        if interactive:
            sys.stderr.write(f"\r{rule.name}: {share:4.0%}" + ("\r\x1b[K" if share >= 1 else ""))
            sys.stderr.flush()

    try:
        return past(rule, asker(ClickHouseSettings(), AlertsSettings().query_timeout_s), since_ms, until_ms, step_ms, progress)
    except EndpointUnavailableError as error:
        raise CliError(f"{error} See `trainhouse ps`", Exit.UNAVAILABLE) from error
    except RuleFailedError as error:
        raise CliError(str(error), Exit.DATA) from error


def _named(name: str) -> "list[Rule]":
    from trainhouse.projections.alerts.errors import InvalidRulesError
    from trainhouse.projections.alerts.rule_files import load, parse
    from trainhouse.projections.alerts.settings import AlertsSettings

    if name.endswith((".yaml", ".yml")) or Path(name).is_file():
        try:
            return parse(Path(name).read_text("utf-8"), name)
        except OSError as error:
            raise CliError(f"{name}: cannot be read ({error.strerror})", Exit.NOT_FOUND) from error
        except InvalidRulesError as error:
            raise CliError(str(error), Exit.USAGE) from error
    known = load(AlertsSettings().rules).rules
    if name not in known:
        raise CliError(f"{name!r} is no rule and no YAML file; the rules are {', '.join(known)}", Exit.NOT_FOUND)
    return [known[name]]


def _occurrence(name: str, each: "Occurrence") -> tuple[Any, ...]:
    from trainhouse.cli.shared.output import clock, duration, one_line

    fired = each.fired
    lasted = duration((each.resolved_ms - fired.at_ms) / 1000) if each.resolved_ms is not None else "still"
    return (name, clock(fired.at_ms), clock(each.resolved_ms), lasted, fired.value, one_line(fired.summary, 160))
