"""What an agent connects users with: the socket of the job's program, whatever the job put in its place."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainhouse.workers.agent.debug.tunnels import _connected
from trainhouse.workers.agent.launch.rank_watch import session_end
from trainhouse.workers.launcher import AttemptPaths


@pytest.fixture
def paths(tmp_path: Path) -> AttemptPaths:
    found = AttemptPaths(tmp_path / ("long" * 30))
    (found.rank(0).folder / "own").mkdir(parents=True)
    found.code.mkdir()
    return found


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of something else on the machine."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "other.sock"))
        other.listen()
        yield other


def test_the_job_s_socket_is_connected_however_long_its_path_is(paths: AttemptPaths, tmp_path: Path, listener: socket.socket) -> None:
    os.rename(tmp_path / "other.sock", paths.rank(0).interactive)
    _connected(paths).close()


def test_a_link_to_another_s_socket_is_not_followed(paths: AttemptPaths, tmp_path: Path, listener: socket.socket) -> None:
    paths.rank(0).interactive.symlink_to(tmp_path / "other.sock")
    with pytest.raises(PermissionError, match="no socket"):
        _connected(paths)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_a_socket_of_another_user_is_not_used(paths: AttemptPaths, tmp_path: Path, listener: socket.socket) -> None:
    os.rename(tmp_path / "other.sock", paths.rank(0).interactive)
    os.chown(paths.code, 1_900_000_001, 1_900_000_001)
    with pytest.raises(PermissionError, match="another user's"):
        _connected(paths)


def test_a_file_or_a_folder_of_links_in_its_place_is_refused(paths: AttemptPaths, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        _connected(paths)
    paths.rank(0).interactive.write_text("no socket")
    with pytest.raises(PermissionError, match="no socket"):
        _connected(paths)


def test_a_reason_that_a_job_leaves_is_one_line_of_a_plain_file(tmp_path: Path) -> None:
    file = tmp_path / "interactive-end.txt"
    assert session_end(file) == ""
    file.write_text("nobody\nused it " + "x" * 10_000)
    assert session_end(file).startswith("interactive session ended: nobody used it xx") and len(session_end(file)) < 400
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert session_end(file) == ""
    file.unlink()
    os.mkfifo(file)
    assert session_end(file) == ""
