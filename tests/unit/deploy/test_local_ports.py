"""A port that was chosen is nobody else's until its server had the time to bind it."""

import os
import tempfile
from pathlib import Path

import pytest

from trainhouse.deploy.local import free_ports


def test_no_port_is_chosen_twice_until_it_was_kept_long_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(free_ports, "is_free", lambda port: True)
    monkeypatch.setattr(free_ports, "FIRST_FREE_PORT", 20_000)
    monkeypatch.setattr(free_ports, "LAST_FREE_PORT", 20_003)
    assert sorted([*free_ports.free_ports(2), free_ports.free_port()]) == [20_000, 20_001, 20_002]
    with pytest.raises(OSError, match="no 1 free ports"):
        free_ports.free_port()
    (kept,) = tmp_path.iterdir()
    long_ago_s = (kept / "20001").stat().st_mtime - free_ports.KEPT_S - 1
    os.utime(kept / "20001", (long_ago_s, long_ago_s))
    assert free_ports.free_port() == 20_001
