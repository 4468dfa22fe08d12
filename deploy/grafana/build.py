"""Makes Grafana's dashboards from compact definitions: `python -m trainhouse.deploy.grafana.build` writes `dashboards/*.json`.

Holds: the same definitions give the same bytes (a test holds the committed files to that); every query is for the ClickHouse data source
(grafana-clickhouse-datasource, its macros and its variables), and the dashboard of objectives comes from the objectives themselves.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from trainhouse.projections.slo.attainment import FIGURES
from trainhouse.projections.slo.targets import Target, shipped

HERE = Path(__file__).parent
SOURCE = {"type": "grafana-clickhouse-datasource", "uid": "trainhouse"}
PLUGIN_VERSION = "4.0.0"
COLUMNS = 24
WIDTH, HEIGHT = 12, 8
NAMES = {"bars": "barchart", "pie": "piechart", "timeline": "state-timeline"}
ALL_VALUES = {"values": True, "calcs": ["lastNotNull"], "fields": ""}
OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {"reduceOptions": ALL_VALUES, "textMode": "value_and_name", "colorMode": "none"},
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    "bars": {"orientation": "horizontal", "showValue": "auto"},
    "pie": {"reduceOptions": ALL_VALUES, "legend": {"displayMode": "table", "values": ["value"]}},
    "table": {"showHeader": True},
    "timeline": {"mergeValues": True, "showValue": "auto"},
    "logs": {"showTime": True, "wrapLogMessage": True},
}


def dashboards() -> dict[str, dict[str, Any]]:
    """All of them by file name. Reads the definitions."""
    found = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in sorted((HERE / "definitions").glob("*.yaml"))}
    return {f"{name}.json": dashboard(name, content) for name, content in {**found, "slo": objectives(shipped())}.items()}


def dashboard(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """One dashboard in Grafana's model."""
    return {
        "uid": f"trainhouse-{name}",
        "title": f"Trainhouse: {content['title']}",
        "description": content["about"],
        "tags": ["trainhouse"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": f"now-{content.get('range', '24h')}", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_variable(each) for each in content["variables"]]},
        "panels": list(_placed(content["panels"])),
    }


def objectives(targets: list[Target]) -> dict[str, Any]:
    """The definition of the dashboard of objectives: one line each, and how fast their budgets burn."""
    lines = "\nUNION ALL\n".join(_line(target) for target in targets)
    table = f"SELECT * FROM (\n{lines}\n) ORDER BY objective"
    panels: list[dict[str, Any]] = [{"title": "Objectives over the range", "kind": "table", "width": 24, "height": 12, "sql": table}]
    panels += [{"title": f"{t.title} ({100 * t.objective:g} %)", "kind": "timeseries", "unit": "none", "sql": _burning(t)} for t in targets]
    about = "How well each objective is met in the range, what is left of its error budget, and how fast that burns (1: as fast as it may)."
    return {"title": "Objectives (SLO)", "about": about, "range": "7d", "variables": [], "panels": panels}


def _line(target: Target) -> str:
    share, budget = "sum(e.good) / sum(e.total)", f"{1 - target.objective:.6g}"
    limit = "NULL" if target.figure_limit is None else f"{target.figure_limit:g}"
    events = target.between("$__fromTime", "$__toTime")
    columns = (
        f"'{target.name}' AS objective",
        f"{target.objective} AS target",
        f"if(sum(e.total) = 0, NULL, {share}) AS actual",
        f"if(sum(e.total) = 0, NULL, 1 - (1 - {share}) / {budget}) AS budget_left",
        f"toFloat64OrNull(toString({FIGURES[target.figure]})) AS figure",
        f"toFloat64OrNull(toString({limit})) AS figure_limit",
        f"'{target.figure.value} {target.unit}' AS figure_is",
        "sum(e.total) AS counted",
    )
    return f"SELECT {', '.join(columns)}\nFROM (\n{events}\n) AS e"


def _burning(target: Target) -> str:
    """The burn rate of each interval of the range."""
    return (
        f"SELECT $__timeInterval(e.at) AS time, (1 - sum(e.good) / sum(e.total)) / {1 - target.objective:.6g} AS burn_rate\n"
        f"FROM (\n{target.between('$__fromTime', '$__toTime')}\n) AS e\nGROUP BY time ORDER BY time"
    )


def _placed(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Panels from left to right, row by row."""
    x = y = row_height = 0
    for number, panel in enumerate(panels, 1):
        width, height = panel.get("width", WIDTH), panel.get("height", HEIGHT)
        if x + width > COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        yield _panel(number, panel, {"x": x, "y": y, "w": width, "h": height})
        x, row_height = x + width, max(row_height, height)


def _panel(number: int, panel: dict[str, Any], place: dict[str, int]) -> dict[str, Any]:
    kind = panel["kind"]
    return {
        "id": number,
        "title": panel["title"],
        "type": NAMES.get(kind, kind),
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.get("unit", "short")}, "overrides": []},
        "options": OPTIONS[kind],
        "targets": [_query(panel["sql"], kind)],
    }


def _query(sql: str, kind: str) -> dict[str, Any]:
    series = kind in ("timeseries", "timeline")
    query_type = "timeseries" if series else "logs" if kind == "logs" else "table"
    return {
        "refId": "A",
        "datasource": SOURCE,
        "editorType": "sql",
        "queryType": query_type,
        "format": {"timeseries": 0, "table": 1, "logs": 2}[query_type],
        "pluginVersion": PLUGIN_VERSION,
        "rawSql": sql.strip(),
    }


def _variable(variable: dict[str, Any]) -> dict[str, Any]:
    many = variable.get("all", True)
    return {
        "name": variable["name"],
        "type": "query",
        "datasource": SOURCE,
        "query": variable["query"],
        "definition": variable["query"],
        "refresh": 2,
        "sort": 0,
        "multi": many,
        "includeAll": many,
        "current": {"text": ["All"], "value": ["$__all"]} if many else {},
    }


def text_of(content: dict[str, Any]) -> str:
    """As the file has it."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Writes all files."""
    for name, content in dashboards().items():
        (HERE / "dashboards" / name).write_text(text_of(content), "utf-8")


if __name__ == "__main__":
    main()
