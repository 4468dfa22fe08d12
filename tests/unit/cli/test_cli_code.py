"""Packing the working folder: the same content gives the same bytes, what git ignores stays, links do not leak."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from trainhouse.client import code_archive
from trainhouse.client.code_archive import pack
from trainhouse.client.errors import CodeTooLargeError, CodeUnreadableError
from trainhouse.deploy.local.layout import StackFolder


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return tar.getnames()


def git(folder: Path, *arguments: str) -> None:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env={**os.environ, **who})


def fill(folder: Path) -> Path:
    (folder / "pkg" / "__pycache__").mkdir(parents=True)
    (folder / "train.py").write_text("print('hi')\n")
    (folder / "pkg" / "a.py").write_text("x = 1\n")
    (folder / "pkg" / "__pycache__" / "a.pyc").write_bytes(b"junk")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def test_without_git_everything_but_junk(tmp_path: Path) -> None:
    packed = pack(fill(tmp_path))
    assert names(packed.archive) == ["pkg/a.py", "run.sh", "train.py"]
    assert packed.git_commit is None
    assert not packed.dirty


def test_the_same_content_is_the_same_archive(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, second = fill(tmp_path / "one"), fill(tmp_path / "two")
    os.utime(second / "train.py", (1, 1))
    (second / "train.py").chmod(0o600)
    assert pack(first).sha256 == pack(second).sha256
    (second / "train.py").write_text("print('ho')\n")
    assert pack(first).sha256 != pack(second).sha256


def test_the_executable_bit_is_kept(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(pack(fill(tmp_path)).archive)) as tar:
        assert tar.getmember("run.sh").mode == 0o755
        assert tar.getmember("train.py").mode == 0o644


def test_with_git_what_git_would_see(tmp_path: Path) -> None:
    fill(tmp_path)
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.pyc\ndata/\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    clean = pack(tmp_path)
    assert clean.git_commit is not None
    assert not clean.dirty
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large.bin").write_bytes(b"x" * 1000)
    (tmp_path / "new.py").write_text("y = 2\n")
    (tmp_path / "train.py").write_text("print('changed')\n")
    (tmp_path / "run.sh").unlink()
    packed = pack(tmp_path)
    assert names(packed.archive) == [".gitignore", "new.py", "pkg/a.py", "train.py"]
    assert packed.git_commit == clean.git_commit
    assert packed.git_diff is not None
    assert b"+print('changed')" in packed.git_diff


def test_a_stacks_folder_of_any_name_is_neither_packed_nor_committed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    StackFolder(tmp_path / "mine").make()
    (tmp_path / "mine/credentials.toml").write_text("x")
    (tmp_path / "train.py").write_text("x")
    assert names(pack(tmp_path).archive) == ["train.py"]
    (tmp_path / "mine/.gitignore").write_text("*\n!shared.md\n")
    StackFolder(tmp_path / "mine").make()
    assert "shared.md" in (tmp_path / "mine/.gitignore").read_text(), "what its owner wrote there stays"


@pytest.mark.parametrize("place", [".trainhouse", "work/.trainhouse"])
def test_a_stack_that_was_started_in_a_checkout_gives_no_key_along(tmp_path: Path, place: str) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "credentials.toml").write_text("x")
    (tmp_path / "train.py").write_text("x")
    assert names(pack(tmp_path).archive) == ["train.py"]


def test_a_folder_inside_of_a_checkout_packs_itself_alone(tmp_path: Path) -> None:
    fill(tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    assert "a.py" in names(pack(tmp_path / "pkg").archive)
    assert "train.py" not in names(pack(tmp_path / "pkg").archive)


def test_links_inside_stay_links_and_links_outside_become_files(tmp_path: Path) -> None:
    inside, outside = tmp_path / "code", tmp_path / "other.py"
    inside.mkdir()
    outside.write_text("z = 3\n")
    (inside / "a.py").write_text("x = 1\n")
    (inside / "link.py").symlink_to("a.py")
    (inside / "far.py").symlink_to(outside)
    with tarfile.open(fileobj=io.BytesIO(pack(inside).archive)) as tar:
        assert tar.getmember("link.py").issym()
        assert tar.getmember("far.py").isreg()
        tar.extractall(tmp_path / "out", filter="data")
    assert (tmp_path / "out" / "far.py").read_text() == "z = 3\n"
    (inside / "folder").symlink_to(tmp_path)
    with pytest.raises(CodeUnreadableError, match="folder is a link"):
        pack(inside)


def test_too_much_is_refused_with_the_largest_files(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"x" * 5000)
    assert pack(tmp_path, limit_bytes=10_000).files == 4
    with pytest.raises(CodeTooLargeError, match=r"weights\.bin .*\.gitignore"):
        pack(tmp_path, limit_bytes=4_000)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CodeUnreadableError, match="--code"):
        pack(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CodeUnreadableError, match="neither a file nor a link"):
        pack(tmp_path)


def test_a_file_that_goes_away_meanwhile_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = code_archive._walk

    def walk_and_lose(folder: Path, start: str) -> list[str]:
        found = list(walk(folder, start))
        (folder / "train.py").unlink()
        return found

    monkeypatch.setattr(code_archive, "_walk", walk_and_lose)
    with pytest.raises(CodeUnreadableError, match=r"train\.py changed while it was packed.*--code"):
        pack(fill(tmp_path))
