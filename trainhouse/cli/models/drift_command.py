"""`trainhouse models drift`: a version in service: drift of its newest window, its live quality, the age of its data.

Holds: it reads the tables alone; what is not measured yet is said with what is missing.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhouse.cli.models.model_options import Project, models_group
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainhouse.client.backend_protocol import Sql

_LABEL, _NARROW = 9, 80
_OF = "project = {project:String} AND model = {model:String}"
_OF_VERSION = f"{_OF} AND version = {{version:UInt32}}"
_VERSIONS = f"SELECT version, semver, stage FROM model_versions WHERE {_OF} ORDER BY version"
_DRIFT = f"""
SELECT toUnixTimestamp64Milli(window_start) AS start_ms, toUnixTimestamp64Milli(window_end) AS end_ms, side, field, verdict, reason,
    psi, psi_limit, ks, ks_limit, wasserstein, wasserstein_limit, predictions, reference, reference_count
FROM drift WHERE {_OF_VERSION} AND (window_start, window_end) IN (
    SELECT window_start, window_end FROM drift WHERE {_OF_VERSION} ORDER BY window_end DESC, window_start DESC LIMIT 1
)
ORDER BY verdict != 'DRIFTED', side, field
"""
_QUALITY = f"""
SELECT toUnixTimestamp64Milli(window_start) AS start_ms, toUnixTimestamp64Milli(window_end) AS end_ms, metric, labels, live, live_low,
    live_high, offline, offline_low, offline_high, champion, champion_live
FROM model_quality WHERE {_OF_VERSION} ORDER BY window_end DESC, metric LIMIT 20
"""
_FRESHNESS = f"""
SELECT age_days, data, data_age_days, versions_behind, toUnixTimestamp64Milli(behind_since) AS behind_since_ms
FROM model_freshness WHERE {_OF_VERSION} ORDER BY data
"""
_LACKS = """
SELECT (SELECT count() FROM model_observations WHERE project = {project:String} AND model = {model:String} AND version = {version:UInt32}
    AND notEmpty(fields)) AS windows,
    (SELECT count() FROM model_references_rows WHERE project = {project:String} AND name = {model:String} AND version = {version:UInt32})
    AS references
"""


def register(app: typer.Typer) -> None:
    """Adds the command to the group of models, which is there already."""
    group = models_group(app)
    group.command("drift")(drift)


def drift(
    version: Annotated[
        str,
        typer.Argument(metavar="NAME[@V]", help="NAME, NAME@champion, NAME@3 or NAME@1.2.0; or PROJECT/NAME@….", show_default=False),
    ],
    project: Project = DEFAULT_PROJECT,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show whether the live data of a version drifted from its reference, and how good it is live; default: the champion.

    \b
    trainhouse models drift digits
    trainhouse models drift vision/resnet@3 --json

    PSI, KS and Wasserstein distance (in standard deviations of the reference) stand with their limits, which are what the reference differs
    from itself by at these sizes: many predictions alone are no drift.
    """
    from trainhouse.cli.shared import output
    from trainhouse.client.quick.quick_reads import sql_of_settings

    sql = sql_of_settings()
    chosen = _chosen(sql, version, project)
    of = {name: chosen[name] for name in ("project", "model", "version")}
    fields, quality, freshness = (sql.table(query, of).dicts() for query in (_DRIFT, _QUALITY, _FRESHNESS))
    if json:
        output.json_lines([chosen | {"fields": fields, "quality": quality, "freshness": freshness}])
        return
    show_version(chosen, freshness, fields)
    if fields:
        sys.stdout.write("\n")
        show_fields(fields)
    else:
        output.remark(_why_none(sql.table(_LACKS, of).dicts()[0]))
    if quality:
        sys.stdout.write("\n")
        show_quality(quality)


def _chosen(sql: "Sql", text: str, project: str) -> dict[str, Any]:
    """The version that is named: project, model, version, semver, stage. Raises CliError."""
    from trainhouse.events.model.model_key import ModelNameError, parse_model

    name, at, selector = text.partition("@")
    try:
        owner, model = parse_model(name, project)
    except ModelNameError as error:
        raise CliError(str(error), Exit.USAGE) from error
    found = sql.table(_VERSIONS, {"project": owner, "model": model}).dicts()
    if not found:
        raise CliError(f"project {owner} has no model {model}; `trainhouse models list` shows what there is", Exit.NOT_FOUND)
    wanted = selector if at else "champion"
    for row in reversed(found):
        if wanted in (str(row["version"]), row["semver"], row["stage"]):
            return {"project": owner, "model": model, **row}
    what = "champion" if wanted == "champion" else f"version {wanted}"
    raise CliError(f"model {owner}/{model} has no {what}; name one as NAME@3: `trainhouse models show {model}` lists them", Exit.NOT_FOUND)


def show_version(chosen: "Mapping[str, Any]", freshness: "list[dict[str, Any]]", fields: "list[dict[str, Any]]") -> None:
    """Prints the version, its age, that of its data, and the window and reference of its fields, a line each."""
    from trainhouse.cli.shared import output

    lines = [("version", f"{chosen['project']}/{chosen['model']}@{chosen['version']} ({chosen['semver']}), {chosen['stage']}")]
    lines += [("age", f"{each['age_days']:.1f} days") for each in freshness[:1]]
    lines += [("data", _data_age(each)) for each in freshness]
    if fields:
        first = fields[0]
        lines.append(("window", f"{_span(first)}, {first['predictions']} predictions"))
        lines.append(("against", _cut(first["reference"], f", {first['reference_count']} samples")))
    for label, text in lines:
        sys.stdout.write(f"{label:<{_LABEL}}{output.printable(text)}\n")


def show_quality(quality: "list[dict[str, Any]]") -> None:
    """Prints a line a window and metric: the live figure, the offline one and the champion's."""
    from trainhouse.cli.shared import output

    columns = ("window", "metric", "labels", "live", "offline", "champion")
    output.table(columns, map(_quality_cells, quality), right=columns[2:], drop=("labels", "champion"), cut="metric")


def show_fields(fields: "list[dict[str, Any]]") -> None:
    """Prints a line a field, then the reasons."""
    from trainhouse.cli.shared import output

    columns = ("side", "field", "verdict", "PSI", "KS", "W")
    output.table(columns, map(_cells, fields), right=columns[3:], drop=("W", "KS", "PSI"), cut="field")
    for field in fields:
        if field["reason"]:
            words = f"{field['side']} {output.printable(field['field'])}: {output.printable(field['reason'])}"
            sys.stdout.write("\n".join(output.wrapped(words)) + "\n")


def _cells(field: "Mapping[str, Any]") -> tuple[Any, ...]:
    figures = (_figure(field[name], field[f"{name}_limit"]) for name in ("psi", "ks", "wasserstein"))
    return field["side"], field["field"], field["verdict"], *figures


def _figure(value: float | None, limit: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f} > {limit:.2f}" if limit is not None and value > limit else f"{value:.3f}"


def _quality_cells(row: "Mapping[str, Any]") -> tuple[Any, ...]:
    live = _interval(row["live"], row["live_low"], row["live_high"])
    offline = _interval(row["offline"], row["offline_low"], row["offline_high"])
    champion = "" if row["champion_live"] is None else f"{row['champion_live']:.3g}"
    return _span(row), row["metric"], row["labels"], live, offline, champion


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if low is None or high is None else f"{value:.3g} ±{(high - low) / 2:.2g}"


def _span(row: "Mapping[str, Any]") -> str:
    from trainhouse.cli.shared.output import clock, duration

    return f"{clock(row['start_ms'])} +{duration((row['end_ms'] - row['start_ms']) / 1000)}"


def _data_age(row: "Mapping[str, Any]") -> str:
    if row["data_age_days"] is None:
        return _cut(row["data"], ": its age is not known") if row["data"] else "not known"
    behind = row["versions_behind"]
    words = f"{behind} version{'s' if behind > 1 else ''} behind" if behind else "the newest"
    return _cut(row["data"], f": {row['data_age_days']:.1f} days old, {words}")


def _cut(text: str, rest: str) -> str:
    """A text and what follows it, as one line of a narrow terminal: the text is cut."""
    from trainhouse.cli.shared.output import one_line

    return one_line(text, max(1, _NARROW - _LABEL - len(rest))) + rest


def _why_none(lacks: "Mapping[str, Any]") -> str:
    if not lacks["references"]:
        return "drift is not measured: the version has no reference yet; `trainhouse models reference` records one"
    if not lacks["windows"]:
        return "drift is not measured: no predictions with histograms were observed; `trainhouse models observe` sends some"
    return "drift is not measured yet: alerts measure new windows each quarter of a minute (they need trainhouse[evaluation])"
