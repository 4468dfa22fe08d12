"""The report as Markdown, HTML and plots: whole, safe with any text, without a request to anybody; and the sentences of its summary."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.cli.data.report import period_of, write
from trainhouse.cli.shared.exit_codes import CliError
from trainhouse.projections.report import drawing, figure_text
from trainhouse.projections.report.document import document
from trainhouse.projections.report.markdown import escape, markdown
from trainhouse.projections.report.model import Compared, Health, Recovery
from trainhouse.projections.report.page import page
from trainhouse.projections.report.period import DAY_MS, Period
from trainhouse.projections.report.plots import plots
from trainhouse.projections.report.sentences import sentences

MONDAY = 1_799_625_600_000
WEEK = Period(MONDAY, MONDAY + 7 * DAY_MS)
NASTY = "<script>alert(1)</script> | `x` $y$ http://elsewhere/z & *bold*"


def full() -> Health:
    back = Recovery(4, 3, 3, 0, 9.0, 70.0, 4000.0, 12)
    node = {"node_id": NASTY, "blames": 2, "losses": 1, "quarantines": 0, "probes_failed": 1, "probes_passed": 0}
    return Health(
        WEEK,
        total=back,
        by_category={"NODE": back, "MADE_UP": Recovery(1, 1, 0, 0, None, None, None, None)},
        by_rule=[{"rule": NASTY, "category": "NODE", "failures": 4, "jobs": 3, "newest": NASTY}],
        by_team=[{"team": NASTY, "failures": 4, "jobs": 3, "own": 0}],
        by_job=[{"job_id": "j", "name": NASTY, "team": "t", "failures": 4, "rule": "r", "category": "NODE", "state": "RUNNING"}],
        over_time={(0, "NODE"): 3, (6, "MADE_UP"): 1},
        time={(0, "KEPT"): 7200.0, (0, "REWORK"): 1800.0, (3, "STARTING"): 1000.0, (3, "UNMEASURED"): 60.0},
        node_s=2515.0,
        unjudged=2,
        checkpoints={"completed": 9, "failed": 1, "restored": 1, "damaged": 0, "bytes_new": 3 * 1024**3, "stage_p50_s": 1.0}
        | {"upload_p50_s": 2.0, "upload_p95_s": 3.0, "restore_p50_s": None},
        checkpoint_failures=[{"reason": NASTY, "failed": 1, "jobs": 1}],
        nodes=[node | {"restricted_now": "QUARANTINED", "rules": "NODE r", "newest": NASTY}],
        alerts=[{"rule": "r", "severity": "WARNING", "fired": 2, "open": 1, "owner": "o", "newest": NASTY}],
    )


class Reader(HTMLParser):
    """Collects what could make a browser ask or run anything, and checks that tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[str] = []
        self.tables = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tables += tag == "table"
        if tag in ("script", "img", "link", "iframe", "object", "base", "form"):
            self.found.append(tag)
        self.found += [f"{n}={v}" for n, v in attrs if n in ("src", "href", "xlink:href", "action") and not (v or "").startswith("#")]
        self.found += [n for n, _ in attrs if n.startswith("on")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_asks_nobody_and_runs_nothing_whatever_the_names_say() -> None:
    found = full()
    html = page(document(Compared(found, Health(WEEK.before), MONDAY)), plots(found))
    reader = read(html)
    assert reader.found == []
    assert reader.tables >= 9 and html.count("<svg") == 4
    assert "default-src 'none'" in html and "<script>" not in html
    assert not re.search(r"url\((?!#)|@import", html)
    assert "prefers-color-scheme:dark" in html and "width=device-width" in html


def test_plots_are_whole_take_the_colours_of_the_page_and_are_the_same_each_time() -> None:
    drawn, again = plots(full()), plots(full())
    assert drawn == again and set(drawn) == {"failures", "recovery", "time", "nodes"}
    for element in drawn.values():
        root = ElementTree.fromstring(element)
        assert root.tag.endswith("svg")
        assert "currentColor" in element and drawing.INK not in element and drawing.GRID not in element
        ElementTree.fromstring(drawing.alone(element))
    assert "Mon 11" in drawn["failures"] and "made up" in drawn["failures"]
    assert "$y$" in "".join(ElementTree.fromstring(drawn["nodes"]).itertext()) or "…" in drawn["nodes"]


def test_markdown_keeps_its_tables_whatever_the_names_say() -> None:
    text = markdown(document(Compared(full(), Health(WEEK.before), MONDAY)), {"failures": "f.svg"})
    assert "![Failures](f.svg)" in text and "recovery.svg" not in text
    width = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width, line
        width = cells
    assert "<script>" not in text


@given(st.text())
def test_escaped_text_is_one_line_without_markup(text: str) -> None:
    found = escape(text)
    assert "\n" not in found
    assert not re.search(r"(?<!\\)(?:\\\\)*[|<`*\[]", found)


def test_a_week_without_anything_says_so_and_draws_nothing() -> None:
    blank = Compared(Health(WEEK), Health(WEEK.before), MONDAY)
    told = document(blank)
    text = markdown(told)
    assert plots(blank.now) == {}
    assert told.summary == ("No data: nothing ran, failed or was saved in this week.",)
    for said in ("No attempt failed", "MTBF: no data", "MTTR: no data", "no device was allocated", "nothing was saved or restored"):
        assert said in text
    assert "| 0 |" not in text and "0.0 %" not in text
    read(page(told, {}))


def test_the_summary_says_what_changed() -> None:
    before = replace(full(), time={(0, "KEPT"): 8000.0, (0, "REWORK"): 2000.0}, total=Recovery(2, 2, 2, 0, 18.0, 18.0, 18.0, 0))
    told = list(sentences(Compared(full(), before, MONDAY)))
    assert told[0] == "4 attempts of 3 jobs failed (+100 % against the week before): 4 NODE, 1 MADE_UP."
    assert (
        told[2]
        == "Jobs were back after 9.0 s at the median (−50 % against the week before), 1 h 6 min at worst; 1 failure had no step after it."
    )
    assert told[3].startswith("72.0 % of the device time made steps that were kept (−8.0 points against the week before); most of the rest")
    assert any("self test" in s and "blamed for 2 failures" in s for s in told)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "no data"), (0.04, "0.0 s"), (9.96, "10.0 s"), (59, "59 s"), (95, "1 min 35 s"), (3600, "1 h"), (90_061, "1 d 1 h")],
)
def test_spans_for_people(seconds: float | None, text: str) -> None:
    assert figure_text.span(seconds) == text


@given(st.integers(1, 400 * DAY_MS), st.integers(0, 2**40))
def test_pieces_cover_their_period(length_ms: int, since_ms: int) -> None:
    period = Period(since_ms, since_ms + length_ms)
    assert 1 <= period.pieces <= 62
    assert 0 <= period.pieces * period.piece_ms - length_ms < period.pieces
    assert period.before.until_ms == period.since_ms and period.before.length_ms == length_ms
    assert all(period.label(n) for n in range(period.pieces))


def test_a_period_is_as_it_was_asked_for_and_never_beyond_now() -> None:
    now = MONDAY + 9 * DAY_MS
    assert period_of("7d", None, None, now) == Period(now - 7 * DAY_MS, now)
    assert period_of("2027-01-11", "2027-01-18", "p", now) == Period(MONDAY, MONDAY + 7 * DAY_MS, "p")
    assert period_of("7d", "2030-01-01", None, now).until_ms == now
    with pytest.raises(CliError, match="--since must be earlier"):
        period_of("1d", "2d", None, now)


def test_files_are_written_and_without_matplotlib_without_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Compared(full(), Health(WEEK.before), MONDAY)
    paths = write(tmp_path / "a", found, document(found))
    assert {p.name for p in paths} == {"health.html", "health.md"} | {f"health_{n}.svg" for n in ("failures", "recovery", "time", "nodes")}
    assert "(health_time.svg)" in (tmp_path / "a" / "health.md").read_text()
    import builtins

    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    assert len(write(tmp_path / "b", found, document(found))) == 2
    assert "trainhouse[sim]" in capsys.readouterr().err
