"""Report of one result, compared with others on the same samples, as Markdown and HTML.

Holds: every number stands in a result or a comparison, with its interval, and a text of a result is shown as text; equal files give equal
reports.
"""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from trainhouse.workers.evaluation.comparison import ComparisonLimits
from trainhouse.workers.evaluation.errors import InvalidEvaluationError, UnpairedResultsError
from trainhouse.workers.evaluation.paired_results import ComparedEntry, Comparison, ResultWithSamples, compare_results
from trainhouse.workers.evaluation.result import EvaluationResult, Metric, load_result
from trainhouse.workers.evaluation.sample_results import load_sample_results

_SHORT: Final = 12
_STYLE: Final = (
    "body{font:15px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;margin:1rem 0}"
    "th,td{border:1px solid #bbb;padding:.25rem .6rem;text-align:left}td.number{text-align:right;font-variant-numeric:tabular-nums}"
)
_NUMBER: Final = re.compile(r"[-+]?[0-9][0-9.,e+-]*( to [-+]?[0-9][0-9.e+-]*)?")

Table = list[tuple[str, ...]]


def compare_files(first: Path, second: Path, margins: Mapping[str, float], *, alpha: float, least: int, seed: int) -> Comparison:
    """Compares two results by the files beside them. Raises UnpairedResultsError, InvalidEvaluationError."""
    sides = [ResultWithSamples(result := load_result(path), load_sample_results(path, result)) for path in (first, second)]
    return compare_results(sides[0], sides[1], margins, ComparisonLimits(alpha=alpha, least_samples=least, seed=seed))


def comparison_lines(found: Comparison) -> Iterator[str]:
    """The comparison as a text for a terminal: a line an entry, then the verdicts."""
    for each in found.entries:
        label = f"{each.metric} {each.group}".strip()
        yield f"{label:<40} {each.first:>10.5g} {each.second:>10.5g} {_signed(each):<34} {_p(each.p_adjusted):>9}  {each.verdict.value}"
    if found.not_compared:
        yield f"not compared, without values by sample: {', '.join(found.not_compared)}"
    groups = "" if found.groups_verdict is None else f"; groups: {found.groups_verdict.value}"
    yield f"verdict: {found.verdict.value}{groups}"


def write_report(
    first: Path, others: Sequence[Path], out: Path, title: str, margins: Mapping[str, float], *, alpha: float, least: int, seed: int
) -> tuple[Path, Path]:
    """Writes report.md and report.html into `out` and returns them. A result that cannot be compared is named, with the reason. Raises
    InvalidEvaluationError."""
    result = load_result(first)
    parts = list(_result_parts(result, title or f"Evaluation {result.suite}"))
    for other in others:
        against = load_result(other)
        parts.append(("h2", f"Against version {against.version[:_SHORT]}"))
        try:
            found = compare_files(first, other, margins, alpha=alpha, least=least, seed=seed)
        except (UnpairedResultsError, InvalidEvaluationError) as error:
            parts.append(("p", f"It is not compared: {error}"))
            continue
        parts += _comparison_parts(found)
    out.mkdir(parents=True, exist_ok=True)
    paths = out / "report.md", out / "report.html"
    paths[0].write_text("\n\n".join(_markdown(kind, content) for kind, content in parts) + "\n", "utf-8")
    body = "\n".join(_html(kind, content) for kind, content in parts)
    heading = html.escape(str(parts[0][1]))
    page = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{heading}</title><style>{_STYLE}</style></head><body>\n'
    paths[1].write_text(f"{page}{body}\n</body></html>\n", "utf-8")
    return paths


_Part = tuple[str, str | Table]


def _result_parts(result: EvaluationResult, title: str) -> Iterator[_Part]:
    yield "h1", title
    facts: Table = [("fact", "value"), ("suite", f"{result.suite} ({result.kind})"), ("version", result.version)]
    facts += [("dataset", result.dataset or "none"), ("split", result.split or "none"), ("samples", str(result.samples))]
    facts += [("seed", str(result.seed)), ("batch size", str(result.batch_size)), ("device", result.device_kind)]
    facts += [("same numbers in a rerun", "yes" if result.repeatable else "no: times are measured")]
    facts += [("result", result.sha256), ("results by sample", result.by_sample or "none"), ("code", result.code or "unknown")]
    yield "table", facts
    yield "h2", "Metrics"
    yield "table", _metric_table(result.metrics, result.confidence)
    for name, reason in sorted(result.undefined.items()):
        yield "p", f"{name}: none, since {reason}."
    for column, grouping in sorted(result.groups.items()):
        yield "h2", f"By {column}"
        rows: Table = [("group", "samples", "metric", "value", "interval")]
        for value, group in sorted(grouping.groups.items()):
            if group.too_few:
                rows.append((value, str(group.samples), f"too few samples, fewer than {grouping.least_samples}", "", ""))
            rows += [(value, str(m.samples), name, _value(m), _interval(m.low, m.high)) for name, m in sorted(group.metrics.items())]
        yield "table", rows
        if grouping.gaps:
            yield "p", f"Widest gaps between groups of {grouping.least_samples} samples or more:"
            yield "table", _metric_table(grouping.gaps, result.confidence)


def _comparison_parts(found: Comparison) -> Iterator[_Part]:
    groups = "" if found.groups_verdict is None else f" Groups: {found.groups_verdict.value}."
    yield "p", f"Verdict: {found.verdict.value}.{groups}"
    rows: Table = [("metric", "group", "samples", "this", "other", "difference", "margin", "p (Holm)", "verdict")]
    for each in found.entries:
        figures = (str(each.samples), f"{each.first:.5g}", f"{each.second:.5g}", _signed(each), f"{each.margin:.4g}", _p(each.p_adjusted))
        rows.append((each.metric, each.group or "all", *figures, each.verdict.value))
    yield "table", rows
    if found.not_compared:
        yield "p", f"Not compared, without values by sample: {', '.join(found.not_compared)}."
    share = f"{100 * found.alpha:g} %"
    yield (
        "p",
        f"A version that equals the other is called better or worse in any row with a probability of {share} at most "
        f"(McNemar's exact test, or {found.resamples} paired resamples, seed {found.seed}; Holm over all rows). "
        f"Fewer than {found.least_samples} samples have no verdict.",
    )


def _metric_table(metrics: Mapping[str, Metric], confidence: float) -> Table:
    rows: Table = [("metric", "value", f"interval ({100 * confidence:g} %)", "samples", "better")]
    for name, each in sorted(metrics.items()):
        rows.append((name, _value(each), _interval(each.low, each.high), str(each.samples), "higher" if each.higher_is_better else "lower"))
    return rows


def _value(metric: Metric) -> str:
    return f"{metric.value:.6g} {metric.unit}".strip()


def _interval(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else f"{low:.5g} to {high:.5g}"


def _signed(entry: ComparedEntry) -> str:
    interval = "" if entry.low is None or entry.high is None else f" ({entry.low:+.4g} to {entry.high:+.4g})"
    return f"{entry.difference:+.4g}{interval}"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _markdown(kind: str, content: str | Table) -> str:
    if isinstance(content, str):
        return {"h1": "# ", "h2": "## "}.get(kind, "") + _markdown_text(content)
    lines = ["| " + " | ".join(map(_markdown_text, row)) + " |" for row in content]
    return "\n".join([lines[0], "|" + "---|" * len(content[0]), *lines[1:]])


def _markdown_text(text: str) -> str:
    """The text without meaning to Markdown or HTML."""
    return re.sub(r"([\\`*|<>\[\]])", r"\\\1", text.replace("\n", " ")).replace("&", "&amp;")


def _html(kind: str, content: str | Table) -> str:
    if isinstance(content, str):
        return f"<{kind}>{html.escape(content)}</{kind}>"
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in content[0])
    rows = ("".join(_cell(cell) for cell in row) for row in content[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</tbody></table>"


def _cell(text: str) -> str:
    kind = ' class="number"' if _NUMBER.fullmatch(text) else ""
    return f"<td{kind}>{html.escape(text)}</td>"
