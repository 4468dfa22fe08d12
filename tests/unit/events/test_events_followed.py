"""A file that is read again when it was changed."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainhouse.events.runtime import watched_files as followed
from trainhouse.events.runtime.watched_files import Followed


def number(path: Path) -> int:
    return int(path.read_text())


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    path, reads = tmp_path / "n", list[int]()
    path.write_text("1")

    def read() -> int:
        reads.append(number(path))
        return reads[-1]

    followed = Followed((path,), read)
    assert [followed.now() for _ in range(3)] == [1, 1, 1] and reads == [1]
    path.write_text("22")
    assert followed.now() == 22 and reads == [1, 22]


@pytest.mark.parametrize("damage", [lambda path: path.write_text("no number"), lambda path: path.unlink()])
def test_what_cannot_be_read_leaves_what_was_known(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    followed = Followed((path,), lambda: number(path))
    damage(path)  # type: ignore[operator]
    assert [followed.now() for _ in range(2)] == [1, 1]
    path.write_text("333")
    assert followed.now() == 333


def test_what_could_not_be_read_for_a_moment_is_read_without_another_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, too_many, said = tmp_path / "n", [False], list[object]()
    monkeypatch.setattr(followed, "log_", SimpleNamespace(error=lambda *_, **about: said.append(about)))
    path.write_text("1")

    def read() -> int:
        if too_many[0]:
            raise OSError(errno.EMFILE, "Too many open files")
        return number(path)

    found = Followed((path,), read)
    path.write_text("22")
    too_many[0] = True
    assert [found.now() for _ in range(3)] == [1, 1, 1] and len(said) == 1
    too_many[0] = False
    assert found.now() == 22


def test_what_cannot_be_read_at_first_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "n"
    with pytest.raises(FileNotFoundError):
        Followed((path,), lambda: number(path))


def test_a_file_that_comes_later_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "n"
    followed = Followed((path,), lambda: number(path) if path.exists() else 0)
    assert followed.now() == 0
    path.write_text("4")
    assert followed.now() == 4
