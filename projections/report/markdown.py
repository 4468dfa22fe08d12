"""The report as Markdown. Pure.

Holds: text from the data never becomes markup: what Markdown or HTML would read as such is escaped.
"""

import re
from collections.abc import Iterator, Mapping

from trainhouse.projections.report.document import Document, Table

_MARKUP = re.compile(r"([\\`*_\[\]<>|~#!])")


def escape(text: str) -> str:
    """Text on one line, without meaning to Markdown."""
    return _MARKUP.sub(r"\\\1", " ".join(text.replace("&", "&amp;").split()))


def markdown(report: Document, pictures: Mapping[str, str] | None = None) -> str:
    """The whole file. `pictures`: name of a plot to the path that it is linked by; none of others."""
    return "\n".join(_lines(report, pictures or {})) + "\n"


def _lines(report: Document, pictures: Mapping[str, str]) -> Iterator[str]:
    yield from (f"# {escape(report.title)}", "", escape(report.about), "")
    yield from (f"- {escape(sentence)}" for sentence in report.summary)
    for section in report.sections:
        yield from ("", f"## {escape(section.title)}")
        for text in section.text:
            yield from ("", escape(text))
        if section.plot in pictures:
            yield from ("", f"![{escape(section.title)}]({pictures[section.plot]})")
        for table in section.tables:
            yield ""
            yield from _table(table)
    yield from ("", "## What the words mean", "")
    yield from _table(Table(("word", "formula", "from"), tuple((d.word, d.formula, d.source) for d in report.definitions)))


def _table(table: Table) -> Iterator[str]:
    yield _row(table.columns)
    yield _row(["---:" if c in table.right else "---" for c in table.columns], plain=True)
    yield from (_row(row) for row in table.rows)


def _row(cells: tuple[str, ...] | list[str], plain: bool = False) -> str:
    return "| " + " | ".join(c if plain else escape(c) for c in cells) + " |"
