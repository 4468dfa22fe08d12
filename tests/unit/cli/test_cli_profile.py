"""Ranks that `profile` takes, and the store that it fetches from."""

import socket

import pytest

from trainhouse.cli.jobs import rank_inspection
from trainhouse.cli.jobs.rank_inspection import chosen_ranks
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.events.model import operations


@pytest.mark.parametrize(("text", "ranks"), [("0", [0]), ("0,3", [0, 3]), ("1-3", [1, 2, 3]), ("3, 0-1,0", [3, 0, 1])])
def test_lists_of_ranks(text: str, ranks: list[int]) -> None:
    assert chosen_ranks(text, 4, "j") == ranks


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("", Exit.USAGE, "write ranks as 0,3 or 0-3"),
        ("a", Exit.USAGE, "write ranks as"),
        ("-1", Exit.USAGE, "write ranks as"),
        ("4", Exit.NOT_FOUND, "j has ranks 0 to 3, not 4"),
        ("3-1", Exit.NOT_FOUND, "ranks 0 to 3"),
        ("0-99999999999999", Exit.NOT_FOUND, "ranks 0 to 3"),
    ],
)
def test_others_are_refused_in_a_sentence(text: str, code: Exit, why: str) -> None:
    with pytest.raises(CliError, match=why) as refused:
        chosen_ranks(text, 4, "j")
    assert refused.value.code == code


def test_at_most_so_many() -> None:
    with pytest.raises(CliError, match="64 ranks at once"):
        chosen_ranks("0-63,64", 1000, "j")
    with pytest.raises(CliError, match="64 ranks at once"):
        chosen_ranks("0-100", 1000, "j")
    limits = (rank_inspection.MAX_PROFILED_RANKS, rank_inspection.MAX_PROFILED_STEPS)
    assert limits == (operations.MAX_PROFILED_RANKS, operations.MAX_PROFILED_STEPS)


def test_a_store_that_is_away_is_reported_before_traces_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("TRAINHOUSE_S3_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
    monkeypatch.setattr(rank_inspection, "OPEN_S", 0.1)
    with pytest.raises(
        CliError, match=r"--out reads the traces from the object store: .*; nothing was recorded; set TRAINHOUSE_S3_"
    ) as refused:
        rank_inspection.trace_store("j")
    assert refused.value.code == Exit.UNAVAILABLE
