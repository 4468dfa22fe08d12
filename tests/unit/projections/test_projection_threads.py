"""Lanes' threads: all replays come before anything new, and who cannot go on stops all."""

from __future__ import annotations

import threading

import pytest

from trainhouse.projections.ingest.lane_threads import LaneThreads


class Told:
    """A lane that notes what is asked of it; raises where it is to."""

    def __init__(self, name: str, heard: list[str], fails_at: str = "") -> None:
        self.name = name
        self._heard = heard
        self._fails_at = fails_at

    def recover(self) -> None:
        self._note("recover")

    def run(self, stop: threading.Event) -> None:
        self._note("run")
        stop.wait(60)

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self._heard.append(f"{what} {self.name}")
        if what == self._fails_at:
            raise ValueError(what)


def lived(*fails_at: str) -> tuple[list[str], LaneThreads]:
    heard: list[str] = []
    threads = LaneThreads(threading.Event())
    for name, at in zip("abc", fails_at, strict=True):
        threads.add(Told(name, heard, at))
    threads.start()
    threads.join()
    return heard, threads


def test_all_recover_before_anybody_runs() -> None:
    heard, threads = lived("", "", "")
    assert heard[:3] == ["recover a", "recover b", "recover c"]
    assert sorted(heard[3:]) == ["close a", "close b", "close c", "run a", "run b", "run c"]
    assert not threads.failures


@pytest.mark.parametrize("at", ["recover", "run"])
def test_a_failure_has_a_name_and_everybody_is_closed(at: str) -> None:
    heard, threads = lived(at, "", "")
    assert [(name, str(error)) for name, error in threads.failures.items()] == [("a", at)]
    assert sorted(h for h in heard if h.startswith("close")) == ["close a", "close b", "close c"]
    if at == "recover":
        assert not [h for h in heard if h.startswith("run") or h == "recover b"]
