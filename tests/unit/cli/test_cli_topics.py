"""What `trainhouse topics` prints fits into 80 columns."""

import pytest

from trainhouse.cli.shared.output import table
from trainhouse.cli.stack.partitions import NARROW, NUMBERS, narrow_rows
from trainhouse.events.wire.project_topics import topics_of
from trainhouse.events.wire.topics import TOPICS

ROWS = [{"topic": t.name, "partitions": 128, "recorded": 128, "key": t.key, "carries": t.carries} for t in (*TOPICS, *topics_of("vision"))]


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    table(NARROW, narrow_rows(ROWS, width), right=NUMBERS)
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= width, "spaces at the end count: a terminal wraps them too"
    lines = [line.rstrip() for line in printed]
    assert any(line.endswith("…") for line in lines) == (width == 80), "what was cut says so"
    for row in ROWS:
        assert any(line.split()[:3] == [row["topic"], "128", "128"] for line in lines if line), f"{row['topic']} is whole, on one line"


def test_keys_that_fit_are_whole() -> None:
    assert [row[-1] for row in narrow_rows(ROWS, 200)] == [row["key"] for row in ROWS]


def test_a_long_name_leaves_a_part_of_the_key() -> None:
    rows = [{"topic": "t" * 200, "partitions": 1, "recorded": 1, "key": "pool or partition"}]
    assert narrow_rows(rows, 80) == [["t" * 200, 1, 1, "pool or…"]]
