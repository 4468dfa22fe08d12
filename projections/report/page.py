"""The report as one HTML page that needs nothing else: styles and plots inside, light and dark, for a phone too. Pure.

Holds: every text is escaped; a content policy forbids the page any request and any script.
"""

from collections.abc import Iterator, Mapping
from html import escape

from trainhouse.projections.report.document import Document, Section, Table

NAMES = frozenset({"node", "job", "category", "state", "now", "rule"})
"""Columns whose words are not broken."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root{color-scheme:light dark;--ground:#fff;--card:#f7f7f5;--ink:#22262b;--soft:#5d6670;--line:#dcdfe2;--accent:#0072b2}
@media(prefers-color-scheme:dark){:root{--ground:#15181c;--card:#1d2127;--ink:#e4e7ea;--soft:#9aa4ae;--line:#363d45;--accent:#56b4e9}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.7rem;margin:0}h2{font-size:1.2rem;margin:2.4rem 0 .6rem;padding-top:.6rem;border-top:1px solid var(--line)}
.about{color:var(--soft);margin:.2rem 0 1.2rem}
.summary{background:var(--card);border-left:4px solid var(--accent);border-radius:4px;margin:0;padding:.8rem 1rem .8rem 2rem}
.summary li{margin:.25rem 0}
figure{margin:1rem 0}figure svg{display:block;width:100%;max-width:36rem;height:auto}
.wide{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;font-size:.9rem;min-width:min(100%,24rem)}
th{text-align:left;color:var(--soft);font-weight:600;border-bottom:1px solid var(--line)}
th,td{padding:.3rem .9rem .3rem 0;vertical-align:top;overflow-wrap:break-word}
td{border-bottom:1px solid var(--line);min-width:4rem;max-width:26rem}
.number{text-align:right;font-variant-numeric:tabular-nums}.number,.name{white-space:nowrap}
dl{font-size:.85rem;color:var(--soft)}dt{color:var(--ink);font-weight:600;margin-top:.6rem}dd{margin:0}
code{font:.95em ui-monospace,monospace}
@media(max-width:32rem){main{padding:1rem .8rem 2rem}h1{font-size:1.4rem}table{font-size:.82rem}th,td{padding-right:.6rem}}
@media print{.wide{overflow:visible}}
"""


def page(report: Document, plots: Mapping[str, str]) -> str:
    """The whole file. `plots`: name to an SVG element."""
    return "\n".join(_lines(report, plots)) + "\n"


def _lines(report: Document, plots: Mapping[str, str]) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield f"<title>{escape(report.title)}: {escape(report.about)}</title><style>{STYLE}</style></head><body><main>"
    yield f'<h1>{escape(report.title)}</h1><p class="about">{escape(report.about)}</p><ul class="summary">'
    yield from (f"<li>{escape(sentence)}</li>" for sentence in report.summary)
    yield "</ul>"
    for section in report.sections:
        yield from _section(section, plots)
    yield "<h2>What the words mean</h2><dl>"
    for each in report.definitions:
        yield f"<dt>{escape(each.word)}</dt><dd>{escape(each.formula)}. From <code>{escape(each.source)}</code></dd>"
    yield "</dl></main></body></html>"


def _section(section: Section, plots: Mapping[str, str]) -> Iterator[str]:
    yield f"<section><h2>{escape(section.title)}</h2>"
    yield from (f"<p>{escape(text)}</p>" for text in section.text)
    if section.plot in plots:
        yield f'<figure role="img" aria-label="{escape(section.title)}">{plots[section.plot]}</figure>'
    for table in section.tables:
        yield from _table(table)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    def kind(column: str) -> str:
        return ' class="number"' if column in table.right else ' class="name"' if column in NAMES else ""

    head = "".join(f"<th{kind(c)}>{escape(c)}</th>" for c in table.columns)
    yield f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>'
    for row in table.rows:
        yield "<tr>" + "".join(f"<td{kind(c)}>{escape(v)}</td>" for c, v in zip(table.columns, row, strict=True)) + "</tr>"
    yield "</tbody></table></div>"
