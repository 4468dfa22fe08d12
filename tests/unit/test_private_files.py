"""Files for their owner alone: mode, wholeness, links, durability, and several writers at once."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trainhouse import private_files
from trainhouse.private_files import private_folder, write_once, write_private

Write = Callable[[Path, bytes], object]
BOTH = pytest.mark.parametrize("write", [write_private, write_once])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "key"


@BOTH
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_file_is_its_owners_alone_and_alone_in_its_folder(path: Path, write: Write, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(path, b"secret")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"secret" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


@BOTH
def test_nobody_else_may_read_it_at_any_time(path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[int, int]] = []

    def noted(name: Path, flags: int, mode: int = 0o777) -> int:
        opened.append((flags, mode))
        return os_open(name, flags, mode)

    os_open = os.open
    monkeypatch.setattr(os, "open", noted)
    write(path, b"secret")
    made = [(flags, mode) for flags, mode in opened if flags & os.O_CREAT]
    assert made and all(mode == 0o600 and flags & os.O_EXCL and flags & os.O_NOFOLLOW for flags, mode in made)


def test_what_others_could_read_is_replaced_by_what_they_cannot(path: Path) -> None:
    path.write_bytes(b"old")
    path.chmod(0o644)
    with path.open("rb") as reader:
        write_private(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_in_its_place_is_replaced_and_what_it_leads_to_stays(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"kept")
    path.symlink_to(other)
    write_private(path, b"secret")
    assert not path.is_symlink() and path.read_bytes() == b"secret" and other.read_bytes() == b"kept"


@BOTH
@pytest.mark.parametrize("link", [True, False])
def test_a_draft_that_others_laid_out_is_not_written_to(path: Path, write: Write, link: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_files.secrets, "token_hex", lambda _: "0123")
    other, draft = path.with_name("other"), path.with_name(".key.0123")
    other.touch()
    draft.symlink_to(other) if link else draft.touch()
    with pytest.raises(FileExistsError):
        write(path, b"secret")
    assert not path.exists() and other.read_bytes() == b"" and draft.read_bytes() == b""


@BOTH
def test_a_write_that_fails_leaves_no_draft_and_the_file_as_it_was(path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, b"new")
    assert path.read_bytes() == b"old" and list(path.parent.iterdir()) == [path]


@BOTH
def test_file_and_name_are_on_the_disk_when_it_returns(path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def noted(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        assert path.exists() == folder, "the bytes come before their name, the folder after it"
        synced.append("folder" if folder else "file")

    monkeypatch.setattr(os, "fsync", noted)
    write(path, b"secret")
    assert synced == ["file", "folder"]


def test_what_need_not_be_durable_waits_for_no_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("waited for the disk"))
    write_private(path, b"secret", durable=False)
    assert path.read_bytes() == b"secret"


def test_what_is_there_stays(path: Path) -> None:
    assert write_once(path, b"first") and not write_once(path, b"second")
    assert path.read_bytes() == b"first" and list(path.parent.iterdir()) == [path]


def test_a_link_that_leads_nowhere_is_no_place_to_write_to(path: Path) -> None:
    path.symlink_to(path.with_name("other"))
    assert not write_once(path, b"secret") and not path.exists()


def test_of_many_writers_at_once_one_writes_and_finds_its_content(path: Path) -> None:
    start, wrote = threading.Barrier(8), []

    def write(number: int) -> None:
        content = b"%d" % number * 10_000
        start.wait()
        if write_once(path, content):
            wrote.append(content)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrote == [path.read_bytes()] and list(path.parent.iterdir()) == [path]


def test_readers_of_a_file_that_is_replaced_see_it_whole(path: Path) -> None:
    contents = [b"%d" % number * 50_000 for number in range(4)]
    write_private(path, contents[0])
    done = threading.Event()

    def write(content: bytes) -> None:
        while not done.is_set():
            write_private(path, content, durable=False)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    try:
        assert all(path.read_bytes() in contents for _ in range(200))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert list(path.parent.iterdir()) == [path]


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_a_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    made = private_folder(tmp_path / "own" / "web")
    assert mode_of(made) == 0o700 and private_folder(made) == made


def test_a_folder_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(PermissionError, match=r"others can reach .*open: chmod 700 it"):
        private_folder(tmp_path / "open")
    assert mode_of(private_folder(tmp_path / "open", 0o755)) == 0o755, "what the caller allows stays"
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 755"):
        private_folder(tmp_path / "open", 0o755)


def test_a_folder_of_ours_can_be_mended(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert mode_of(private_folder(tmp_path / "open", 0o711, mend=True)) == 0o711


@pytest.mark.parametrize("mend", [False, True])
def test_a_link_is_refused_and_so_is_a_folder_that_others_can_replace(tmp_path: Path, mend: bool) -> None:
    (tmp_path / "target").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(PermissionError, match="link or belongs to another user"):
        private_folder(tmp_path / "link", mend=mend)
    assert mode_of(tmp_path / "target") == 0o755
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(PermissionError, match=r"others can replace .*web: chmod o-w .*shared"):
        private_folder(shared / "web", mend=mend)
    shared.chmod(0o1777)
    assert mode_of(private_folder(shared / "web", mend=mend)) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="needs to give a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    private_folder(tmp_path / "theirs")
    os.chown(tmp_path / "theirs", 12345, 12345)
    with pytest.raises(PermissionError, match="link or belongs to another user"):
        private_folder(tmp_path / "theirs", mend=True)
