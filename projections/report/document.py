"""The report as sections of sentences, tables and plots, before it is Markdown or HTML. Pure.

Holds: the same content in both; a section without data says so in a sentence and has no table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainhouse.projections.report import figure_text
from trainhouse.projections.report.definitions import CAUSE_WORDS, DEFINITIONS, Definition
from trainhouse.projections.report.model import WASTE, Compared, Health, Recovery, Row
from trainhouse.projections.report.sentences import sentences


@dataclass(frozen=True)
class Table:
    """`right`: columns of numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Section:
    """One heading. `plot` names the picture that belongs here."""

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plot: str = ""


@dataclass(frozen=True)
class Document:
    """The whole report."""

    title: str
    about: str
    summary: tuple[str, ...]
    sections: tuple[Section, ...]
    definitions: tuple[Definition, ...] = field(default=DEFINITIONS)


def document(found: Compared) -> Document:
    """The report of a period."""
    now = found.now
    pool = f"pool {now.period.pool}" if now.period.pool else "all pools"
    about = f"{_day(now.period.since_ms)} to {_day(now.period.until_ms)} UTC, {pool}; made {_day(found.made_at_ms)} UTC"
    parts = (_failures(now), _recovery(now), _time(now), _nodes(now), _checkpoints(now), _alerts(now))
    return Document("Cluster health", about, tuple(sentences(found)), parts)


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def table(columns: str, rows: Iterable[Sequence[object]], right: str = "") -> Table:
    """Columns by comma; cells are shown as text."""
    return Table(tuple(columns.split(",")), tuple(tuple(str(c) for c in row) for row in rows), frozenset(right.split(",")))


def _failures(now: Health) -> Section:
    text = []
    if now.unjudged:
        text.append(
            f"In {figure_text.counted(now.unjudged, 'more attempt')} a rank ended with an error and no verdict says why: not counted."
        )
    if not now.failures:
        return Section("Failures", ("No attempt failed, as far as verdicts tell.", *text))
    causes = table(
        "category,failures,jobs,steps lost",
        [(c, r.failures, r.jobs, figure_text.number(r.lost_steps)) for c, r in now.by_category.items()],
        "failures,jobs,steps lost",
    )
    rules = table(
        "rule,category,failures,jobs,the newest",
        [(r["rule"], r["category"], r["failures"], r["jobs"], r["newest"]) for r in now.by_rule],
        "failures,jobs",
    )
    teams = table(
        "team,failures,jobs,its own code",
        [(r["team"] or "(none)", r["failures"], r["jobs"], r["own"]) for r in now.by_team],
        "failures,jobs,its own code",
    )
    jobs = table(
        "job,name,team,failures,the newest,state",
        [(r["job_id"], r["name"], r["team"], r["failures"], f"{r['category']} {r['rule']}", r["state"]) for r in now.by_job],
        "failures",
    )
    return Section("Failures", tuple(text), (causes, rules, teams, jobs), "failures")


def _recovery(now: Health) -> Section:
    rows = [
        ("all failures", now.failures, *_between(now, False)),
        ("of the infrastructure", now.infrastructure_failures, *_between(now, True)),
    ]
    mtbf = table(
        "failures,count,device time between two,node time between two", rows, "count,device time between two,node time between two"
    )
    text = ["MTBF: allocated time per failure."]
    if not now.device_s:
        text = ["MTBF: no data, no device was allocated."]
    elif not now.failures:
        text = [f"MTBF: no failure in {figure_text.hours(now.device_s)} of allocated device time."]
    total = now.total
    if total is None:
        return Section("Between failures, and back", (*text, "MTTR: no data, nothing failed."), (mtbf,) if now.device_s else ())
    text.append("MTTR: from a failure to the next step of its job.")
    if total.by_status:
        text.append(f"Of {figure_text.counted(total.by_status, 'failure')} the job logs no steps: back is when it was RUNNING again.")
    times = table(
        "category,failures,back,p50,p95,worst",
        [_times(c, r) for c, r in (("all", total), *now.by_category.items())],
        "failures,back,p50,p95,worst",
    )
    return Section("Between failures, and back", tuple(text), (mtbf, times), "recovery" if total.recovered else "")


def _between(now: Health, infrastructure: bool) -> tuple[str, str]:
    return tuple(figure_text.hours(now.between_failures_s(infrastructure, nodes)) for nodes in (False, True))  # type: ignore[return-value]


def _times(name: str, found: Recovery) -> tuple[object, ...]:
    return (name, found.failures, found.recovered, *(figure_text.span(s) for s in (found.p50_s, found.p95_s, found.worst_s)))


def _time(now: Health) -> Section:
    if not now.device_s:
        return Section("Goodput and waste", ("No data: no device was allocated.",))
    text = []
    unmeasured_s = now.of("UNMEASURED")
    if unmeasured_s:
        text.append(
            f"{figure_text.hours(unmeasured_s)} of {figure_text.hours(now.device_s)} of allocated device time are of jobs that logged no "
            "steps: what became of them is not known, and shares are of the rest."
        )
    if not now.measured_s:
        return Section("Goodput and waste", (*text, "Goodput: no data, no job logged a step."))
    rows = [(CAUSE_WORDS[c], figure_text.hours(now.of(c)), figure_text.share(now.of(c) / now.measured_s)) for c in ("KEPT", *WASTE)]
    rows.append(("wasted in all", figure_text.hours(now.wasted_s), figure_text.share((now.wasted_s or 0) / now.measured_s)))
    return Section("Goodput and waste", tuple(text), (table("GPU time,device-hours,share", rows, "device-hours,share"),), "time")


def _nodes(now: Health) -> Section:
    if not now.nodes:
        return Section("Worst nodes", ("Nothing was held against any node.",))
    rows = [
        (
            *(r["node_id"], r["blames"], r["losses"], r["quarantines"], _probes(r)),
            {"": "", "NONE": "open again"}.get(r["restricted_now"], str(r["restricted_now"])),
            "; ".join(part for part in (r["rules"], r["newest"]) if part),
        )
        for r in now.nodes
    ]
    columns = "node,blamed,lost,quarantined,self tests,now,why"
    return Section("Worst nodes", (), (table(columns, rows, "blamed,lost,quarantined"),), "nodes")


def _probes(row: Row) -> str:
    parts = (
        f"{row['probes_failed']} failed" if row["probes_failed"] else "",
        f"{row['probes_passed']} passed" if row["probes_passed"] else "",
    )
    return ", ".join(p for p in parts if p)


def _checkpoints(now: Health) -> Section:
    found = now.checkpoints
    if not now.saves and not found.get("restored"):
        return Section("Checkpoints", ("No data: nothing was saved or restored.",))
    stall = now.of("SAVE_STALL") / now.measured_s if now.measured_s else None
    rows = (
        ("saved", figure_text.number(found["completed"])),
        ("failed", f"{figure_text.number(found['failed'])} ({figure_text.share(now.failed_saves_share)})"),
        ("training held up by saves", figure_text.share(stall)),
        ("copied to host memory, p50", figure_text.span(found["stage_p50_s"])),
        ("uploaded, p50", figure_text.span(found["upload_p50_s"])),
        ("uploaded, p95", figure_text.span(found["upload_p95_s"])),
        ("new bytes stored", figure_text.size(int(found["bytes_new"]))),
        ("restored", figure_text.number(found["restored"])),
        ("restored from an older one, since newer ones were damaged", figure_text.number(found["damaged"])),
        ("restored in, p50", figure_text.span(found["restore_p50_s"])),
    )
    tables = [table("checkpoints,", rows, "")]
    if now.checkpoint_failures:
        causes = [(r["reason"], r["failed"], r["jobs"]) for r in now.checkpoint_failures]
        tables.append(table("why saves failed,failed,jobs", causes, "failed,jobs"))
    return Section("Checkpoints", (), tuple(tables))


def _alerts(now: Health) -> Section:
    if not now.alerts:
        return Section("Alerts", ("No alert fired, and none was open.",))
    rows = [(r["rule"], r["severity"], r["fired"], r["open"], r["owner"], r["newest"]) for r in now.alerts]
    return Section("Alerts", (), (table("rule,severity,fired,still open,owner,the newest", rows, "fired,still open"),))
